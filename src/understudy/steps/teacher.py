"""Examples -> the teacher: trained, or fetched, or both."""

import os
from collections.abc import Mapping

from understudy.recipe import LABELS, Recipe
from understudy.revision import TRAINING
from understudy.steps.fetching import fetched_model
from understudy.steps.identity import TRAINED_BY, model_identity, objectives_identity, task_code, training_identity
from understudy.steps.job_spec import training_spec
from understudy.steps.naming import check_student_names
from understudy.steps.step import Step, Work
from understudy.steps.training import train
from understudy.store import Store


def _section(recipe: Recipe, store: Store) -> Mapping[str, object]:
    model = model_identity(recipe.teacher.model, store, "teacher.model")
    trained = training_identity(recipe.teacher.train, recipe.resources.teacher, recipe.seed)
    code = {"task_code": task_code(recipe.task, TRAINED_BY)}
    return {"model": model, **trained, **code, **objectives_identity(LABELS)}


def _teach(work: Work) -> None:
    recipe = work.recipe
    initial = fetched_model(work, recipe.teacher.model, "teacher.model", "new" if recipe.teacher.train else "kept")
    if recipe.teacher.train is None:
        assert initial is not None
        for path in initial.iterdir():
            os.link(path, work.staged / path.name)
        return
    check_student_names(work)
    train(
        work,
        training_spec(work, "teacher", recipe.teacher.model, recipe.teacher.train, recipe.resources.teacher, initial),
    )


TEACHER = Step(
    name="teacher",
    role="teacher",
    kind="model",
    work=_teach,
    modules=TRAINING,
    section=_section,
    inputs=("examples",),
)
