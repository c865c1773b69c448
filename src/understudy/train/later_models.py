"""Checks of all of a recipe's models before the first training: they fit the data, and the precision of evaluation."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import torch

from understudy.data.loader import Examples
from understudy.errors import InputError
from understudy.models.build import build_model, empty_model, probe_model
from understudy.models.describe import describe
from understudy.models.facts import Description, keeps_apart, read_facts
from understudy.models.outputs import OutputShapes
from understudy.objectives.objective import Context, extras_of, objective
from understudy.recipe import SavedModel, degrees
from understudy.recipe.objectives import Extra
from understudy.recipe.roles import STUDENT, section_of
from understudy.train.batches import check_batches
from understudy.train.descriptions import description_of, description_of_teacher, extras_of_job
from understudy.train.documents import check_takes_positions
from understudy.train.layers import check_later_starts
from understudy.train.measured import check_narrowed
from understudy.train.naming import check_names
from understudy.train.shapes import check_shapes

if TYPE_CHECKING:  # the format of a job's specification is no part of a training's step key
    from understudy.jobs.payload import TrainingJob


def try_later_models(job: "TrainingJob", split: Examples, device: Literal["cpu", "cuda"]) -> None:
    """Check that later jobs' models fit the data, too, and all models the precision of their evaluation.

    These errors would otherwise appear hours later.
    """
    facts, shapes = read_facts(job.examples), dict[str, OutputShapes]()
    if extras_of_job(job):
        shapes[job.model_path] = _try(split, description_of(job), job.model_path, extras_of_job(job))
    for path, model in job.later_models.items():
        description = describe(model, facts, path)
        if keeps_apart(facts):
            check_takes_positions(empty_model(description, path), path)
        shapes[path] = _try(split, description, path, extras_of_job(job))
        if path == section_of(STUDENT) and job.student_train:
            _try_student(job, split, device, description, shapes)
    if job.later_starts:
        check_later_starts(job.later_starts, _descriptions(job))
    _try_measured(job, split)


def _try_student(
    job: "TrainingJob",
    split: Examples,
    device: Literal["cpu", "cuda"],
    description: Description,
    shapes: Mapping[str, OutputShapes],
) -> None:
    """Check the names in the student's settings, and its batches. This job trains a teacher.

    An objective's parameters are left out if a shape that it is built from is unknown, such as a pretrained teacher's.
    """
    assert job.student_train is not None
    path = section_of(STUDENT)
    teachers = {name: shapes.get(section_of(name), OutputShapes()) for name in job.student_teachers}
    is_known = not extras_of(job.student_objectives) or all(section_of(name) in shapes for name in teachers)
    context = Context(job.student_train, job.seed, shapes[path], teachers)
    student_objective = objective(job.student_objectives, context) if is_known else None
    check_names(empty_model(description, path), student_objective, job.student_train, f"{STUDENT}.train")
    spread = degrees(job.student_train.strategy, *job.student_world)
    check_batches(description, split, job.student_train, spread, device, STUDENT)


def _try(split: Examples, description: Description, path: str, extras: frozenset[Extra]) -> OutputShapes:
    """The shapes of a model's outputs, after a check that it fits the data, without memory.

    A failure counts only if a real model fails, too: some code cannot run without memory.
    """
    device = torch.device("cpu")
    try:
        with probe_model(description, path) as model:
            return check_shapes(model, split, description, device, path, extras)
    except InputError:
        return check_shapes(build_model(description, path), split, description, device, path, extras)


def _try_measured(job: "TrainingJob", split: Examples) -> None:
    """Check that this job's model, and those before and after, compute in the precision of their evaluation."""
    if job.measured_in == "fp32":
        return
    in_memory = [name for name, teacher in job.teachers.items() if isinstance(teacher, SavedModel)]
    teachers = {section_of(name): description_of_teacher(job, name) for name in in_memory}
    for path, description in {**_descriptions(job), **teachers}.items():
        check_narrowed(description, split, path)


def _descriptions(job: "TrainingJob") -> dict[str, Description]:
    """The descriptions of this job's model and of later ones, by their path in the recipe."""
    facts = read_facts(job.examples)
    later = {path: describe(model, facts, path) for path, model in job.later_models.items()}
    return {**later, job.model_path: description_of(job)}
