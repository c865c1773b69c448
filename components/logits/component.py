"""A teacher and examples -> its cached logits."""

from kfp import dsl

from understudy.components.passthrough import TO_THE_JOB


@dsl.component(base_image="understudy/launcher", install_kfp_package=False, task_config_passthroughs=TO_THE_JOB)
def logits(run: str, node: str, task: dsl.TaskConfig, cached: dsl.Output[dsl.Markdown]) -> str:
    """Cache a teacher's logits, once for all trainings that read them."""
    from understudy.steps import component, show

    show(cached, component(node, run, vars(task)))
    return run
