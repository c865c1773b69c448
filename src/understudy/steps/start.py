"""The first task of a pipeline run: check recipe, overrides and the account's rights, look up cached results."""

import logging
import os
from dataclasses import dataclass
from typing import Any, Literal

from understudy.errors import Forbidden, InputError, UnderstudyError
from understudy.graph import GATE
from understudy.recipe import Recipe
from understudy.recipe.file import read_values
from understudy.recipe.overrides import split_overrides
from understudy.steps.environment import RUN, open_store, tracking_uri
from understudy.steps.gate import decision
from understudy.steps.graph import state_of, step_names
from understudy.steps.lookup import Lookup, reuse
from understudy.store import Run, Store

log = logging.getLogger(__name__)
UNDECIDED = "auto is chosen on a machine with torch when a recipe is compiled or submitted; compile it with --set"


@dataclass(frozen=True)
class Begun:
    """A started run."""

    run: str
    """Its id."""
    found: Literal["nothing", "approved", "rejected"]
    """The decision, if every step is in the step cache; otherwise `nothing`, and there is work to do."""
    lookup: Lookup
    """The cached steps."""


def start(values: dict[str, Any], overrides: str, seed: int, job_id: str, steps: list[str]) -> Begun:
    """Check the recipe with a run's overrides, create the run's folder, and look up its steps in the step cache.

    `understudy run` does the lookup before it starts the pipeline, so it is not repeated here.

    Args:
        values: the recipe that the pipeline was compiled from.
        overrides: a.b=value, one per line or separated by semicolons.
        seed: the run's seed, unless the overrides set another.
        job_id: the pipeline run's id if KFP runs it.
        steps: the compiled pipeline's steps.

    Raises:
        InputError: a value is wrong, or changes the set of steps.
        Forbidden: the tracking server refuses this account, so that the run could not be registered.
    """
    store = open_store()
    existing = store.run(os.environ[RUN]) if RUN in os.environ else None
    recipe = Recipe.model_validate(existing.recipe) if existing else _checked_recipe(values, overrides, seed)
    expected = step_names(recipe)
    if expected != steps:
        raise InputError(
            f"overrides: they change the pipeline's steps from {', '.join(steps)} to {', '.join(expected)}; "
            "compile the recipe with them instead"
        )
    run = existing or _create_run(store, recipe, job_id)
    _sign_in(store, run, recipe)
    lookup = Lookup((), complete=False) if existing else reuse(store, run)
    outcome = _decision(store, run) if lookup.complete else "nothing"
    count = f"{len(lookup.states)} of {len(expected)} results are cached"
    log.info("start: run %s: %s", run.id, count if outcome == "nothing" else f"all results are cached: {outcome}")
    return Begun(run.id, outcome, lookup)


def _create_run(store: Store, recipe: Recipe, job_id: str) -> Run:
    from understudy.registry.server import public_uri

    uri = public_uri(tracking_uri(store))
    return store.create_run(recipe.name, recipe.model_dump(mode="json", by_alias=True), uri, job_id)


def _sign_in(store: Store, run: Run, recipe: Recipe) -> None:
    """Open the run's record on a tracking server, to report missing rights before anything is trained.

    A server that does not answer stops no run: the record is sent when the student is registered.

    Raises:
        Forbidden: the server refuses this account.
    """
    from understudy.registry.client import server_at
    from understudy.registry.recorder import Recorder

    uri = tracking_uri(store)
    if not uri.startswith(("http://", "https://")):
        return
    try:
        Recorder(run, uri, recipe.experiment, {}).open(server_at(uri))
    except Forbidden:
        raise
    except UnderstudyError as error:
        log.warning("start: %s", error)


def _decision(store: Store, run: Run) -> Literal["approved", "rejected"]:
    state = state_of(run, GATE)
    assert state is not None
    return decision(store.objects.path(state.digest))


def _checked_recipe(values: dict[str, Any], overrides: str, seed: int) -> Recipe:
    """Validate the recipe of a run that `understudy run` did not start.

    Folders and modules of models may be in the trainer image only; this task, like ingest, is in the launcher image.
    """
    from understudy.steps.recipe_check import Here, findings

    loaded = read_values(values, [f"seed={seed}", *split_overrides(overrides)], "overrides")
    result = findings(loaded.recipe, Here(models=False, waits_for_hub=False))
    if result.problems:
        raise loaded.source.error(result.problems)
    undecided = [((section, "train", "strategy"), UNDECIDED) for section in loaded.recipe.undecided]
    if undecided:
        raise loaded.source.error(undecided)
    return loaded.recipe
