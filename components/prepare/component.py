"""Records -> examples."""

from kfp import dsl


@dsl.component(base_image="understudy/launcher", install_kfp_package=False)
def prepare(run: str, node: str, examples: dsl.Output[dsl.Markdown]) -> str:
    """Turn records into arrays that training maps into memory."""
    from understudy.steps import component, show

    show(examples, component(node, run))
    return run
