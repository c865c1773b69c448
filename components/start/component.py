"""The first task of every pipeline run."""

from kfp import dsl


@dsl.component(base_image="understudy/launcher", install_kfp_package=False)
def start(recipe: str, overrides: str, seed: int, job_id: str, steps: str) -> str:
    """Check the recipe with the run's own values, and make the run's folder."""
    import json

    from understudy.steps import start_component

    return start_component(json.loads(recipe), overrides, seed, job_id, steps.split(","))
