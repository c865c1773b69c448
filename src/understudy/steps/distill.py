"""Examples and the teacher -> the student."""

from collections.abc import Mapping

from understudy.recipe import Recipe
from understudy.revision import TRAINING
from understudy.steps.identity import objectives_identity, student_identity
from understudy.steps.job_spec import student_spec
from understudy.steps.step import Step, Work
from understudy.steps.training import train
from understudy.store import Store


def _section(recipe: Recipe, store: Store) -> Mapping[str, object]:
    teacher = {"teacher_precision": recipe.student.teacher_precision}
    return {**student_identity(recipe, store), **teacher, **objectives_identity(recipe.objectives)}


def _distill(work: Work) -> None:
    if (kept := work.recipe.student.teacher_precision) != "fp32":
        work.facts["teacher_precision"] = kept
    train(work, student_spec(work, "distill", work.recipe.objectives))


DISTILL = Step(
    name="distill",
    role="student",
    kind="model",
    work=_distill,
    modules=TRAINING,
    section=_section,
    inputs=("examples", "teacher"),
)
