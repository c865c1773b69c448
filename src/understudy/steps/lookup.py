"""A run of which every step is in the step cache already: its first task finds that, and the others need not start."""

from understudy.errors import UnderstudyError
from understudy.recipe import Recipe
from understudy.steps.execution import cached
from understudy.steps.graph import STEPS, step_names
from understudy.store import Run, Store


def reuse(store: Store, run: Run) -> bool:
    """Whether all steps of a run are in the step cache; they are recorded as reused then, and otherwise none is.

    A step whose key cannot be told now, because a server does not answer or an input is refused, is not found: its
    own task says why, where one looks for it.
    """
    made: dict[str, str] = {}
    states = []
    for step in (STEPS[name] for name in step_names(Recipe.model_validate(run.recipe))):
        given = {role: made[role] for role in step.inputs if role in made}
        try:
            world = step.outside(run, store, given)
            state = cached(step, store, run, {**given, **world.inputs}, world.facts)
        except UnderstudyError:
            return False
        if state is None:
            return False
        states.append(state)
        made[step.role] = state.digest
    for state in states:
        run.record(state)
        STEPS[state.step].follow(run, store)
    return True
