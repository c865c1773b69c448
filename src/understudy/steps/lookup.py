"""Which steps of a run are in the step cache: when all of them are, its first task says so and no other one starts."""

from dataclasses import dataclass

from understudy.errors import Forbidden, UnderstudyError
from understudy.recipe import Recipe
from understudy.steps.execution import cached
from understudy.steps.graph import STEPS, step_names
from understudy.store import Run, StepState, Store


@dataclass(frozen=True)
class Lookup:
    """The steps of a run that are in the step cache, up to the first that is not."""

    states: tuple[StepState, ...]
    """What the run records of each that was found, in the order of the steps."""
    complete: bool
    """Whether that is all of them."""
    problem: str = ""
    """Why the next one's key cannot be told now; empty where it simply has no result yet."""


def _look_up(store: Store, run: Run) -> Lookup:
    """Look a run's steps up in the step cache; nothing is recorded.

    A step whose key cannot be told now, because a server does not answer or an input is refused, is not found: its
    own task says why, where one looks for it.

    Raises:
        Forbidden: a server refuses this account.
    """
    made: dict[str, str] = {}
    states: list[StepState] = []
    for step in (STEPS[name] for name in step_names(Recipe.model_validate(run.recipe))):
        given = {role: made[role] for role in step.inputs if role in made}
        try:
            world = step.outside(run, store, given)
            state = cached(step, store, run, {**given, **world.inputs}, world.facts)
        except Forbidden:
            raise
        except UnderstudyError as error:
            return Lookup(tuple(states), complete=False, problem=str(error))
        if state is None:
            return Lookup(tuple(states), complete=False)
        states.append(state)
        made[step.role] = state.digest
    return Lookup(tuple(states), complete=True)


def reuse(store: Store, run: Run) -> Lookup:
    """Look all steps of a run up; when every one is in the step cache they are recorded as reused, otherwise none is.

    Raises:
        Forbidden: a server refuses this account.
    """
    found = _look_up(store, run)
    for state in found.states if found.complete else ():
        run.record(state)
        STEPS[state.step].follow(run, store)
    return found
