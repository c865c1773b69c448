"""The pipeline's steps, by name and in their order.

start -> ingest -> prepare -> teacher -> distill -> evaluate -> gate -> register
                      |                                |
                      +-----------> control -----------+

The control is there when the recipe asks for one.
"""

from understudy.recipe import Recipe
from understudy.steps.control import CONTROL
from understudy.steps.distill import DISTILL
from understudy.steps.evaluate import EVALUATE
from understudy.steps.gate import GATE
from understudy.steps.ingest import INGEST
from understudy.steps.prepare import PREPARE
from understudy.steps.register import REGISTER
from understudy.steps.teacher import TEACHER

STEPS = {step.name: step for step in (INGEST, PREPARE, TEACHER, CONTROL, DISTILL, EVALUATE, GATE, REGISTER)}


def step_names(recipe: Recipe) -> list[str]:
    """The names of the steps that a recipe's pipeline has, in their order."""
    left_out = set() if recipe.student.control else {CONTROL.name}
    return [name for name in STEPS if name not in left_out]
