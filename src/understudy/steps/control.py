"""Examples -> the control: the student without its teacher, with the same budget and the same seed."""

from collections.abc import Mapping

from understudy.recipe import Recipe
from understudy.recipe.objectives import without_teacher
from understudy.revision import TRAINING
from understudy.steps.identity import objectives_identity, student_identity
from understudy.steps.job_spec import student_spec
from understudy.steps.step import Step, Work
from understudy.steps.training import train
from understudy.store import Store


def _train_alone(work: Work) -> None:
    train(work, student_spec(work, "control", without_teacher()))


def _section(recipe: Recipe, store: Store) -> Mapping[str, object]:
    return {**student_identity(recipe, store), **objectives_identity(without_teacher())}


CONTROL = Step(
    name="control",
    role="control",
    kind="model",
    work=_train_alone,
    modules=TRAINING,
    section=_section,
    inputs=("examples",),
)
