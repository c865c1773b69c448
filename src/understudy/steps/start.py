"""The first task of a pipeline run: check the recipe with the run's own values, make its folder, look ahead."""

import logging
import os
from dataclasses import dataclass
from typing import Any, Literal

from understudy.errors import InputError
from understudy.recipe import Recipe
from understudy.recipe.file import read_values
from understudy.recipe.overrides import split_overrides
from understudy.steps.environment import RUN, open_store, tracking_uri
from understudy.steps.gate import decision
from understudy.steps.graph import step_names
from understudy.steps.lookup import reuse
from understudy.store import Run, Store

log = logging.getLogger(__name__)
UNDECIDED = "auto is chosen where a recipe is compiled or submitted, by what has torch; compile it with --set"


@dataclass(frozen=True)
class Begun:
    """A run that has begun."""

    run: str
    """Its id."""
    found: Literal["nothing", "approved", "rejected"]
    """The decision, when every step was found in the step cache; otherwise there is work to do."""


def start(values: dict[str, Any], overrides: str, seed: int, job_id: str, steps: list[str]) -> Begun:
    """Check the recipe with a run's own values, make the run's folder, and look whether anything is left to do.

    Args:
        values: the recipe that the pipeline was compiled from.
        overrides: a.b=value, one a line or separated by semicolons.
        seed: the run's seed, unless the overrides set another.
        job_id: the pipeline run's id where KFP runs it.
        steps: the compiled pipeline's steps.

    Raises:
        InputError: a value is wrong, or changes which steps there are.
    """
    store = open_store()
    made = store.run(os.environ[RUN]) if RUN in os.environ else None
    recipe = Recipe.model_validate(made.recipe) if made else _checked(values, overrides, seed)
    wanted = step_names(recipe)
    if wanted != steps:
        raise InputError(
            f"overrides: they change the pipeline's steps from {', '.join(steps)} to {', '.join(wanted)}; "
            "compile the recipe with them instead"
        )
    run = made or _made(store, recipe, job_id)
    found = _found(store, run)
    log.info("start: run %s: %s", run.id, "to be made" if found == "nothing" else f"all of it is there: {found}")
    return Begun(run.id, found)


def _made(store: Store, recipe: Recipe, job_id: str) -> Run:
    from understudy.registry.server import public_uri

    uri = public_uri(tracking_uri(store))
    return store.create_run(recipe.name, recipe.model_dump(mode="json", by_alias=True), uri, job_id)


def _found(store: Store, run: Run) -> Literal["nothing", "approved", "rejected"]:
    if not reuse(store, run):
        return "nothing"
    state = run.state("gate")
    assert state is not None
    return decision(store.objects.path(state.digest))


def _checked(values: dict[str, Any], overrides: str, seed: int) -> Recipe:
    """The recipe of a run that no command has checked.

    Folders and modules of models may be in the trainer's image alone; this task runs in the launcher's, as ingest does.
    """
    from understudy.steps.recipe_check import Here, findings

    written = read_values(values, [f"seed={seed}", *split_overrides(overrides)], "overrides")
    found = findings(written.recipe, Here(models=False, waits_for_hub=False))
    if found.problems:
        raise written.source.error(found.problems)
    undecided = [((section, "train", "strategy"), UNDECIDED) for section in written.recipe.undecided]
    if undecided:
        raise written.source.error(undecided)
    return written.recipe
