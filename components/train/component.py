"""Examples, and the teacher for a student -> a model."""

from kfp import dsl

from understudy.components.passthrough import TO_THE_JOB


@dsl.component(base_image="understudy/launcher", install_kfp_package=False, task_config_passthroughs=TO_THE_JOB)
def train(run: str, node: str, task: dsl.TaskConfig, model: dsl.Output[dsl.Markdown]) -> str:
    """Train or fetch a model, once for all runs that share it."""
    from understudy.steps import component, show

    show(model, component(node, run, vars(task)))
    return run
