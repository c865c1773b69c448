"""Models -> scores on lm-eval's tasks."""

from kfp import dsl

from understudy.components.passthrough import TO_THE_JOB


@dsl.component(base_image="understudy/launcher", install_kfp_package=False, task_config_passthroughs=TO_THE_JOB)
def benchmark(run: str, node: str, task: dsl.TaskConfig, metrics: dsl.Output[dsl.Metrics]) -> str:
    """Score teacher, student and control on lm-eval's tasks."""
    from understudy.steps import component, show

    show(metrics, component(node, run, vars(task)))
    return run
