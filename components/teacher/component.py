"""Examples -> the teacher."""

from kfp import dsl


@dsl.component(base_image="understudy/launcher", install_kfp_package=False)
def teacher(run: str, examples: str, model: dsl.Output[dsl.Model]) -> str:
    """Train or fetch the teacher, once for all runs that share it."""
    from understudy.steps import component

    result = component("teacher", run, examples=examples)
    model.metadata = {"digest": result.digest, **result.facts}
    return result.digest
