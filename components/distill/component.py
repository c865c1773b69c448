"""Examples and teacher -> the student."""

from kfp import dsl

from understudy.components.passthrough import TO_THE_JOB


@dsl.component(base_image="understudy/launcher", install_kfp_package=False, task_config_passthroughs=TO_THE_JOB)
def distill(run: str, task: dsl.TaskConfig, student_model: dsl.Output[dsl.Markdown]) -> str:
    """Train the student with the teacher."""
    from understudy.steps import component, show

    show(student_model, component("distill", run, vars(task)))
    return run
