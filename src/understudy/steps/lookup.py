"""Lookup of a run's steps in the step cache: if all are there, only the first task of the pipeline runs."""

from dataclasses import dataclass

from understudy.errors import Forbidden, UnderstudyError
from understudy.recipe import Recipe
from understudy.steps.execution import cached
from understudy.steps.graph import steps_of
from understudy.store import Run, StepState, Store


@dataclass(frozen=True)
class Lookup:
    """The steps of a run that are in the step cache, up to the first that is not."""

    states: tuple[StepState, ...]
    """The state to record for each cached step, in order."""
    complete: bool
    """Whether all steps are cached."""
    problem: str = ""
    """Why the next step's key cannot be computed now; empty if the step only has no result yet."""


def _look_up(store: Store, run: Run) -> Lookup:
    """Look up a run's steps in the step cache; nothing is recorded.

    A step whose key cannot be computed now, because a server does not answer or an input is refused, counts as not
    cached: its task reports the reason, where users look for it.

    Raises:
        Forbidden: a server refuses this account.
    """
    digests: dict[str, str] = {}
    states: list[StepState] = []
    for step in steps_of(Recipe.model_validate(run.recipe)).values():
        inputs = {role: digests[role] for role in step.inputs if role in digests}
        try:
            world = step.outside(run, store, inputs)
            state = cached(step, store, run, {**inputs, **world.inputs}, world.facts)
        except Forbidden:
            raise
        except UnderstudyError as error:
            return Lookup(tuple(states), complete=False, problem=str(error))
        if state is None:
            return Lookup(tuple(states), complete=False)
        states.append(state)
        digests[step.role] = state.digest
    return Lookup(tuple(states), complete=True)


def reuse(store: Store, run: Run) -> Lookup:
    """Look up all steps of a run; if every one is in the step cache, record all as reused, otherwise none.

    Raises:
        Forbidden: a server refuses this account.
    """
    lookup, steps = _look_up(store, run), steps_of(Recipe.model_validate(run.recipe))
    for state in lookup.states if lookup.complete else ():
        run.record(state)
        steps[state.step].follow(run, store)
    return lookup
