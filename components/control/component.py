"""Examples -> the control."""

from kfp import dsl


@dsl.component(base_image="understudy/launcher", install_kfp_package=False)
def control(run: str, examples: str, model: dsl.Output[dsl.Model]) -> str:
    """Train the student without the teacher: same budget, same seed."""
    from understudy.steps import component

    result = component("control", run, examples=examples)
    model.metadata = {"digest": result.digest, **result.facts}
    return result.digest
