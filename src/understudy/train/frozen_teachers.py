"""A training's teachers: loaded for inference, distributed over ranks beside the student."""

from pathlib import Path
from typing import TYPE_CHECKING

from torch import nn

from understudy.data.loader import Examples
from understudy.errors import InputError
from understudy.models.build import (
    empty_model,
    move_buffers,
)
from understudy.models.eight_bits import EightBits
from understudy.models.facts import keeps_apart, output_size, read_facts
from understudy.models.files import check_files, read_weights
from understudy.models.four_bits import FourBits
from understudy.models.narrow import narrowed
from understudy.models.outputs import OutputShapes
from understudy.models.rounded import QuantizedLinear, quantize_linear_layers
from understudy.objectives.objective import extras_of, learns_from
from understudy.parallel.apply import Spread, reshard
from understudy.parallel.savers import Savers
from understudy.parallel.tensor import has_plan
from understudy.recipe import SavedLogits, TeacherPrecision
from understudy.recipe.roles import STUDENT, section_of
from understudy.teachers.cache.reader import CachedLogits
from understudy.teachers.cached import CachedTeacher
from understudy.teachers.in_memory import ModelTeacher
from understudy.teachers.teacher import Teacher
from understudy.train.descriptions import description_of_teacher
from understudy.train.documents import check_takes_positions
from understudy.train.precision import PRECISIONS
from understudy.train.shapes import check_shapes, find_head

if TYPE_CHECKING:  # the format of a job's specification is no part of a training's step key
    from understudy.jobs.payload import TrainingJob


FEWER_BITS: dict[TeacherPrecision, type[QuantizedLinear]] = {"int8": EightBits, "nf4": FourBits}


def frozen_teachers(
    job: "TrainingJob", examples: Examples, spread: Spread
) -> tuple[dict[str, Teacher], dict[str, OutputShapes]]:
    """The teachers by name, and the shapes of their outputs."""
    teachers, shapes = dict[str, Teacher](), dict[str, OutputShapes]()
    for name, teacher in job.teachers.items():
        if isinstance(teacher, SavedLogits):
            vocabulary = output_size(read_facts(job.examples))
            teachers[name] = CachedTeacher(CachedLogits(Path(teacher.folder)), len(examples), vocabulary)
            shapes[name] = OutputShapes()
        else:
            teachers[name], shapes[name] = _frozen_teacher(job, name, examples, spread)
    return teachers, shapes


def _frozen_teacher(job: "TrainingJob", name: str, examples: Examples, spread: Spread) -> tuple[Teacher, OutputShapes]:
    """A teacher, split like the student, in the recipe's number of shards."""
    folder, path = Path(job.teachers[name].folder), section_of(name)
    extras = extras_of(section for section in job.objectives if learns_from(section, name, tuple(job.teachers)))
    description = description_of_teacher(job, name)
    check_files(folder, description)
    # The files have the types from before the weights were narrowed.
    saved = None if job.teacher_precision == "fp32" else empty_model(description, path)
    network = empty_model(description, path)
    if keeps_apart(read_facts(job.examples)):
        check_takes_positions(network, path)
    spread = spread_of_teacher(spread, job.teacher_shards, job.learner)
    model = teacher_over_ranks(
        network, spread, job.teacher_precision, compiled=bool(job.train.compile), learner=job.learner
    )
    read_weights(model, folder, spread.home, full_model=saved)
    move_buffers(model, spread.device)
    shapes = check_shapes(model, examples, description, spread.device, path, extras)
    find_head(model, examples, spread.device)
    reshard(model)
    return ModelTeacher(model, extras), shapes


def spread_of_teacher(spread: Spread, shards: int | None, learner: str = STUDENT) -> Spread:
    """The distribution of an inference-only model beside a trained one.

    Args:
        spread: the trained model's.
        shards: number of ranks that share a copy; default: as for the trained model, or all ranks if it has stages.
        learner: the path in the recipe of the trained model, for errors.

    Raises:
        InputError: ranks do not divide into such copies.
    """
    try:
        return spread.for_inference(spread.degrees.of_teacher(shards))
    except ValueError as error:
        raise InputError(f"{learner}.teacher_shards: {error}") from error


def teacher_over_ranks(
    model: nn.Module, spread: Spread, kind: TeacherPrecision, *, compiled: bool = False, learner: str = STUDENT
) -> nn.Module:
    """An inference-only model, each rank with its part.

    Args:
        model: whole, with memory or without.
        spread: from spread_of_teacher().
        kind: the type of its weights.
        compiled: whether to compile its blocks where worthwhile; quantised ones never are.
        learner: the learner's path in the recipe, for errors.

    Raises:
        InputError: quantised layers would be split.
    """
    if kind in FEWER_BITS:
        if spread.degrees.tp > 1:
            raise InputError(f"{learner}.teacher_precision: layers in {kind} are not split (tp); use bf16")
        quantize_linear_layers(model, FEWER_BITS[kind])
    else:
        narrowed(model, PRECISIONS[kind])
    # Without a plan each rank of a tensor-parallel group computes the whole model, with the same outputs.
    savers = Savers(compiled="auto" if compiled and kind not in FEWER_BITS else False)
    return spread.over_ranks(model, {} if has_plan(model) else None, "teacher.train", savers)
