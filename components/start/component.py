"""The first task of every pipeline run."""

from typing import NamedTuple

from kfp import dsl


@dsl.component(base_image="understudy/launcher", install_kfp_package=False)
def start(
    recipe: str,
    overrides: str,
    seed: int,
    job_id: str,
    steps: str,
    fails: bool,
    overview: dsl.Output[dsl.Markdown],
    report: dsl.Output[dsl.HTML],
) -> NamedTuple("Begun", [("Output", str), ("run", str)]):  # type: ignore[valid-type]
    """Check the recipe and the account's rights, make the run's folder, and show which results are there."""
    import json

    from understudy.steps import show_start, start_component

    begun = start_component(json.loads(recipe), overrides, seed, job_id, steps.split(","), fails)
    show_start(overview, report, begun)
    return begun.found, begun.run
