"""Examples -> a model: the teacher, the student, or the control, which is the student without its teacher.

A pretrained teacher without `train` is fetched and used as it is.
"""

import os
from collections.abc import Mapping
from functools import partial

from understudy.graph import Node
from understudy.jobs.trainings import objectives
from understudy.models.pretrained import Head
from understudy.recipe import Recipe, Train
from understudy.recipe.learners import start_of
from understudy.revision import TRAINING
from understudy.steps.fetching import fetched_model
from understudy.steps.fitting import check_models_fit
from understudy.steps.identity import TRAINED_BY, model_identity, objectives_identity, task_code, training_identity
from understudy.steps.job_spec import training_spec
from understudy.steps.model_job import train
from understudy.steps.naming import check_student_names
from understudy.steps.step import Step, Work
from understudy.store import Store


def step(node: Node) -> Step:
    """The step of a training."""
    return Step(
        name=node.name,
        role=node.role,
        kind="model",
        work=partial(_train, node),
        modules=TRAINING,
        section=partial(_section, node),
        inputs=node.inputs,
    )


def _section(node: Node, recipe: Recipe, store: Store) -> Mapping[str, object]:
    resources, precision = recipe.resources.by_job[node.resources], recipe.learners[node.learner].teacher_precision
    teachers: dict[str, object] = {}
    if node.teachers:
        teachers = {"teachers": list(node.teachers), "teacher_precision": precision}
    start = start_of(recipe, node.training) if node.training else None
    if any(node.logits):
        teachers["logits"] = list(node.logits)
    return {
        "model": model_identity(recipe.models[node.model], store, node.model),
        **training_identity(settings(node, recipe), resources, recipe.seed),
        **teachers,
        **({"start": start.model_dump(mode="json")} if start else {}),
        "task_code": task_code(recipe.task, TRAINED_BY),
        **objectives_identity(objectives(recipe, node)),
    }


def settings(node: Node, recipe: Recipe) -> Train | None:
    """The settings of a training; None for a teacher that is used as it is."""
    return recipe.trainings[node.training].train if node.training else None


def _train(node: Node, work: Work) -> None:
    recipe, train_settings = work.recipe, settings(node, work.recipe)
    head: Head = "new" if train_settings else "kept"
    starts_from_layers = node.training and start_of(recipe, node.training)
    earlier = work.input(node.start) if node.start and not starts_from_layers else None
    examples = work.input(node.examples)
    check_models_fit(work, examples, node.model)
    initial = earlier or fetched_model(work, recipe.models[node.model], node.model, head, examples)
    if train_settings is None:
        assert initial is not None
        for path in initial.iterdir():
            os.link(path, work.staged / path.name)
        return
    if not node.is_student:
        check_student_names(work, examples)
    precision = recipe.learners[node.learner].teacher_precision
    if node.teachers and precision != "fp32":
        work.facts["teacher_precision"] = precision
    train(work, training_spec(work, node, initial))
