"""Examples and teacher -> the student."""

from kfp import dsl


@dsl.component(base_image="understudy/launcher", install_kfp_package=False)
def distill(run: str, examples: str, teacher: str, model: dsl.Output[dsl.Model]) -> str:
    """Train the student with the teacher."""
    from understudy.steps import component

    result = component("distill", run, examples=examples, teacher=teacher)
    model.metadata = {"digest": result.digest, **result.facts}
    return result.digest
