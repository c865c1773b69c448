"""The first task of every pipeline run."""

from typing import NamedTuple

from kfp import dsl


@dsl.component(base_image="understudy/launcher", install_kfp_package=False)
def start(recipe: str, overrides: str, seed: int, job_id: str, steps: str) -> NamedTuple(  # type: ignore[valid-type]
    "Begun", [("Output", str), ("run", str)]
):
    """Check the recipe with the run's own values, make the run's folder, and look whether all of it is there."""
    import json

    from understudy.steps import start_component

    begun = start_component(json.loads(recipe), overrides, seed, job_id, steps.split(","))
    return begun.found, begun.run
