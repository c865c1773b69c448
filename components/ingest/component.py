"""Source -> records."""

from kfp import dsl


@dsl.component(base_image="understudy/launcher", install_kfp_package=False)
def ingest(run: str, node: str, records: dsl.Output[dsl.Markdown]) -> str:
    """Read the source once into immutable records, split by content."""
    from understudy.steps import component, show

    show(records, component(node, run))
    return run
