"""The pipeline's steps, by name and in order.

start -> ingest -> prepare -> teacher -> distill -> evaluate -> gate -> register
                      |                                |
                      +-----------> control -----------+

The control is a step only if the recipe sets student.control.
"""

from understudy.errors import UnderstudyError
from understudy.recipe import Recipe
from understudy.steps.control import CONTROL
from understudy.steps.distill import DISTILL
from understudy.steps.evaluate import EVALUATE
from understudy.steps.gate import GATE
from understudy.steps.ingest import INGEST
from understudy.steps.prepare import PREPARE
from understudy.steps.register import REGISTER
from understudy.steps.step import Step
from understudy.steps.teacher import TEACHER
from understudy.store import Run

STEPS = {step.name: step for step in (INGEST, PREPARE, TEACHER, CONTROL, DISTILL, EVALUATE, GATE, REGISTER)}


def step_names(recipe: Recipe) -> list[str]:
    """The names of the steps of a recipe's pipeline, in order."""
    left_out = set() if recipe.student.control else {CONTROL.name}
    return [name for name in STEPS if name not in left_out]


def inputs_of(step: Step, run: Run) -> dict[str, str]:
    """The digests of a step's inputs from the run's other steps, by role.

    Raises:
        UnderstudyError: one of them has no result in this run.
    """
    makers = {STEPS[name].role: name for name in step_names(Recipe.model_validate(run.recipe))}
    found = {}
    for role in (role for role in step.inputs if role in makers):
        state = run.state(makers[role])
        if state is None or not state.digest:
            raise UnderstudyError(f"{step.name}: run {run.id} has no result of {makers[role]}; run that one first")
        found[role] = state.digest
    return found
