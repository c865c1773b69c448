"""Records -> examples."""

from kfp import dsl


@dsl.component(base_image="understudy/launcher", install_kfp_package=False)
def prepare(run: str, records: str, examples: dsl.Output[dsl.Dataset]) -> str:
    """Turn records into arrays that training maps into memory."""
    from understudy.steps import component

    result = component("prepare", run, records=records)
    examples.metadata = {"digest": result.digest, **result.facts}
    return result.digest
