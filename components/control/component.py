"""Examples -> the control."""

from kfp import dsl

from understudy.components.passthrough import TO_THE_JOB


@dsl.component(base_image="understudy/launcher", install_kfp_package=False, task_config_passthroughs=TO_THE_JOB)
def control(run: str, task: dsl.TaskConfig, control_model: dsl.Output[dsl.Markdown]) -> str:
    """Train the student without the teacher: same budget, same seed."""
    from understudy.steps import component, show

    show(control_model, component("control", run, vars(task)))
    return run
