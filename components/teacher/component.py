"""Examples -> the teacher."""

from kfp import dsl

from understudy.components.passthrough import TO_THE_JOB


@dsl.component(base_image="understudy/launcher", install_kfp_package=False, task_config_passthroughs=TO_THE_JOB)
def teacher(run: str, task: dsl.TaskConfig, teacher_model: dsl.Output[dsl.Markdown]) -> str:
    """Train or fetch the teacher, once for all runs that share it."""
    from understudy.steps import component, show

    show(teacher_model, component("teacher", run, vars(task)))
    return run
