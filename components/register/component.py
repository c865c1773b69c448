"""An approved student -> model version."""

from kfp import dsl


@dsl.component(base_image="understudy/launcher", install_kfp_package=False)
def register(run: str, node: str, registered_model: dsl.Output[dsl.Markdown]) -> str:
    """Record the run in MLflow, and the approved student as challenger."""
    from understudy.steps import component, show

    result = component(node, run)
    show(registered_model, result, result.inputs[result.facts["candidate"]])
    return run
