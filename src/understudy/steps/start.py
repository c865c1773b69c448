"""The first task of every pipeline run: check the recipe with the run's own values, and make the run's folder."""

import os
from typing import Any

from understudy.errors import InputError
from understudy.recipe import Recipe
from understudy.recipe.file import read_values
from understudy.recipe.overrides import split_overrides
from understudy.steps.environment import RUN, open_store, tracking_uri
from understudy.steps.graph import step_names


def start(values: dict[str, Any], overrides: str, seed: int, job_id: str, steps: list[str]) -> str:
    """Check the recipe with a run's own values, and make the run's folder.

    Args:
        values: the recipe that the pipeline was compiled from.
        overrides: a.b=value, one a line or separated by semicolons.
        seed: the run's seed, unless the overrides set another.
        job_id: the pipeline run's id where KFP runs it.
        steps: the compiled pipeline's steps.

    Returns:
        The run's id.

    Raises:
        InputError: a value is wrong, or changes which steps there are.
    """
    from understudy.registry.server import public_uri

    store = open_store()
    made = store.run(os.environ[RUN]) if RUN in os.environ else None
    recipe = Recipe.model_validate(made.recipe) if made else _checked(values, overrides, seed)
    wanted = step_names(recipe)
    if wanted != steps:
        raise InputError(
            f"overrides: they change the pipeline's steps from {', '.join(steps)} to {', '.join(wanted)}; "
            "compile the recipe with them instead"
        )
    if made:
        return made.id
    uri = public_uri(tracking_uri(store))
    return store.create_run(recipe.name, recipe.model_dump(mode="json", by_alias=True), uri, job_id).id


def _checked(values: dict[str, Any], overrides: str, seed: int) -> Recipe:
    """The recipe of a run that no command has checked.

    Folders and modules of models may be in the trainer's image alone; this task runs in the launcher's, as ingest does.
    """
    from understudy.steps.recipe_check import Here, findings

    written = read_values(values, [f"seed={seed}", *split_overrides(overrides)], "overrides")
    found = findings(written.recipe, Here(models=False, waits_for_hub=False))
    if found.problems:
        raise written.source.error(found.problems)
    return written.recipe
