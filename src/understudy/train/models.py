"""A training's models: tested on an example, built without memory, distributed over ranks, and loaded.

No rank allocates a whole model that does not fit: of transformers' models it allocates only its part.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from understudy.data.loader import Examples
from understudy.errors import InputError
from understudy.models.adapters import add_adapters, draw_adapters
from understudy.models.build import (
    build_model,
    empty_model,
    is_empty,
    materialize,
    move_buffers,
    probe_model,
    tied_weights,
)
from understudy.models.describe import describe
from understudy.models.eight_bits import EightBits
from understudy.models.facts import Description, keeps_apart, predicts_tokens, read_description, read_facts
from understudy.models.files import check_files, read_weights
from understudy.models.float8 import convert_to_float8
from understudy.models.four_bits import FourBits
from understudy.models.initial import draw_weights
from understudy.models.narrow import narrowed
from understudy.models.outputs import OutputShapes
from understudy.models.rounded import QuantizedLinear, quantize_linear_layers
from understudy.models.tasks import TextModel
from understudy.models.trust import trusted_description
from understudy.models.weight_files import weight_bytes
from understudy.objectives.objective import Context, extras_of, learns_from, objective
from understudy.parallel.apply import Spread, reshard
from understudy.parallel.layout import EXAMPLES, layout
from understudy.parallel.savers import Savers
from understudy.parallel.tensor import has_plan
from understudy.recipe import Degrees, TeacherPrecision, degrees
from understudy.recipe.objectives import Extra
from understudy.recipe.roles import STUDENT, section_of
from understudy.teachers.in_memory import ModelTeacher
from understudy.teachers.teacher import Teacher
from understudy.train.batches import check_batches
from understudy.train.documents import check_takes_positions
from understudy.train.measured import check_narrowed
from understudy.train.memory import settle_freed_memory
from understudy.train.naming import check_names
from understudy.train.precision import PRECISIONS
from understudy.train.shapes import check_shapes
from understudy.train.staged import Staged, cut_into_stages

if TYPE_CHECKING:  # the format of a job's specification is no part of a training's step key
    from understudy.jobs.payload import TrainingJob

FEWER_BITS: dict[TeacherPrecision, type[QuantizedLinear]] = {"int8": EightBits, "nf4": FourBits}

log = logging.getLogger(__name__)


def try_later_models(job: "TrainingJob", split: Examples, device: Literal["cpu", "cuda"]) -> None:
    """Check that later jobs' models fit the data, too, and all models the precision of their evaluation.

    These errors would otherwise appear hours later.
    """
    facts, shapes = read_facts(job.examples), dict[str, OutputShapes]()
    if _extras_of(job):
        shapes[job.model_path] = _try(split, description_of(job), job.model_path, _extras_of(job))
    for where, model in job.later_models.items():
        description = describe(model, facts, where)
        if keeps_apart(facts):
            check_takes_positions(empty_model(description, where), where)
        shapes[where] = _try(split, description, where, _extras_of(job))
        if where == section_of(STUDENT) and job.student_train:
            _try_student(job, split, device, description, shapes)
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
    where = section_of(STUDENT)
    teachers = {name: shapes.get(section_of(name), OutputShapes()) for name in job.student_teachers}
    is_known = not extras_of(job.student_objectives) or all(section_of(name) in shapes for name in teachers)
    context = Context(job.student_train, job.seed, shapes[where], teachers)
    student_objective = objective(job.student_objectives, context) if is_known else None
    check_names(empty_model(description, where), student_objective, job.student_train, f"{STUDENT}.train")
    spread = degrees(job.student_train.strategy, *job.student_world)
    check_batches(description, split, job.student_train, spread, device, STUDENT)


def _try(split: Examples, description: Description, where: str, extras: frozenset[Extra]) -> OutputShapes:
    """The shapes of a model's outputs, after a check that it fits the data, without memory.

    A failure counts only if a real model fails, too: some code cannot run without memory.
    """
    device = torch.device("cpu")
    try:
        with probe_model(description, where) as model:
            return check_shapes(model, split, description, device, where, extras)
    except InputError:
        return check_shapes(build_model(description, where), split, description, device, where, extras)


def _try_measured(job: "TrainingJob", split: Examples) -> None:
    """Check that this job's model, and those before and after, compute in the precision of their evaluation."""
    if job.measured_in == "fp32":
        return
    facts = read_facts(job.examples)
    described = {where: describe(model, facts, where) for where, model in job.later_models.items()}
    described[job.model_path] = description_of(job)
    described |= {section_of(name): _description_of_teacher(job, name) for name in job.teachers}
    for where, description in described.items():
        check_narrowed(description, split, where)


def _extras_of(job: "TrainingJob") -> frozenset[Extra]:
    """Outputs besides logits that the objectives of this job and the student's need."""
    return extras_of((*job.objectives, *job.student_objectives))


def degrees_of(job: "TrainingJob", processes: int) -> Degrees:
    """The degrees of the job's models over the ranks after rendezvous, with so many processes on each node.

    Raises:
        InputError: the strategy does not fit their number, or the length of sequences.
    """
    try:
        found = degrees(job.train.strategy, dist.get_world_size() // processes, processes)
    except ValueError as error:
        raise InputError(f"{job.train_path}.strategy: {error}") from error
    facts = read_facts(job.examples)
    if found.sequence_parts > 1 and (not predicts_tokens(facts) or facts["sequence_length"] % found.sequence_parts):
        raise InputError(
            f"{job.train_path}.strategy: {found} splits sequences of tokens evenly; "
            f"data.text.sequence_length has to be a multiple of {found.sequence_parts}"
        )
    return found


def description_of(job: "TrainingJob") -> Description:
    """The description of the trained model."""
    if job.initial:
        return read_description(job.initial)
    return describe(job.model, read_facts(job.examples), job.model_path)


def _description_of_teacher(job: "TrainingJob", name: str) -> Description:
    """The description of one of the model's teachers."""
    teacher = job.teachers[name]
    return trusted_description(Path(teacher.folder), teacher.model, job.examples, section_of(name))


@dataclass(frozen=True)
class Started:
    """The initial model, distributed over the ranks."""

    model: nn.Module
    """This rank's part."""
    aliases: set[str]
    """Second names of its tied weights."""
    staged: Staged | None
    """This rank's stages, with pipeline parallel."""
    shapes: OutputShapes


def initial_model(
    job: "TrainingJob", description: Description, examples: Examples, spread: Spread, processes: int
) -> Started:
    """Build the initial model, distributed over the ranks; each node has so many processes."""
    torch.manual_seed(job.seed)
    model = empty_model(description, job.model_path)
    if keeps_apart(read_facts(job.examples)):
        check_takes_positions(model, job.model_path)
    aliases = tied_weights(model)
    settle_freed_memory(_share(job, model, spread), processes)
    if job.train.lora:
        add_adapters(model, job.train.lora, job.train_path)
    if job.train.precision == "fp8":
        _say_left(convert_to_float8(model, job.train_path), job.train_path)
    if spread.degrees.pp > 1:
        whole = empty_model(description, job.model_path) if job.initial else None
        with probe_model(description, job.model_path) as tried:
            shapes = check_shapes(tried, examples, description, torch.device("cpu"), job.model_path, _extras_of(job))
            shown, _, _ = spread.own_positions(*examples.batch(np.zeros(EXAMPLES, dtype=np.int64)))
            found = layout(tried, shown, job.train_path)
        staged = cut_into_stages(model, found, examples, spread, job.train, job.train_path)
        _fill(job, staged.held, description, spread.device, whole)
        held = staged.settle(spread.device)
        draw_adapters(held, job.seed)
        staged.detect_head(spread.device)
        return Started(held, aliases, staged, shapes)
    if not is_empty(model):
        model.to(spread.device)
    model = spread.over_ranks(model, job.train.tensor_plan, job.train_path, Savers.of(job.train))
    _fill(job, model, description, spread.home, empty_model(description, job.model_path) if job.train.lora else None)
    move_buffers(model, spread.device)
    draw_adapters(model, job.seed)
    shapes = check_shapes(model, examples, description, spread.device, job.model_path, _extras_of(job))
    _find_head(model, examples, spread.device)
    reshard(model)
    return Started(spread.replicated(model), aliases, None, shapes)


def _say_left(left: list[str], where: str) -> None:
    if left and dist.get_rank() == 0:
        kinds = ", ".join(sorted({re.sub(r"\b\d+\b", "*", name) for name in left}))
        log.warning("%s.precision: in bf16, for their sizes or a shared weight: %s", where, kinds)


def _share(job: "TrainingJob", model: nn.Module, spread: Spread) -> int:
    """Bytes of a rank's weights, of a whole model and its teachers."""
    parts = spread.degrees.world_size // spread.degrees.dp_replicate
    own = sum(parameter.nbytes for parameter in model.parameters())
    return (own + sum(weight_bytes(Path(teacher.folder)) for teacher in job.teachers.values())) // parts


def _fill(
    job: "TrainingJob", model: nn.Module, description: Description, device: torch.device, whole: nn.Module | None = None
) -> None:
    """Load or initialise the weights of this rank's part of a model."""
    if job.initial:
        check_files(job.initial, description)
        read_weights(model, job.initial, device, whole)
    elif is_empty(model):
        materialize(model, device)
        draw_weights(model.get_submodule("net"), job.seed)
    else:
        model.to(device)


def frozen_teachers(
    job: "TrainingJob", examples: Examples, spread: Spread
) -> tuple[dict[str, Teacher], dict[str, OutputShapes]]:
    """The teachers by name, and the shapes of their outputs."""
    teachers, shapes = {}, {}
    for name in job.teachers:
        teachers[name], shapes[name] = _frozen_teacher(job, name, examples, spread)
    return teachers, shapes


def _frozen_teacher(job: "TrainingJob", name: str, examples: Examples, spread: Spread) -> tuple[Teacher, OutputShapes]:
    """A teacher, split like the student, in the recipe's number of shards."""
    folder, where = Path(job.teachers[name].folder), section_of(name)
    extras = extras_of(each for each in job.objectives if learns_from(each, name, tuple(job.teachers)))
    description = _description_of_teacher(job, name)
    check_files(folder, description)
    # The files have the types from before the weights were narrowed.
    saved = None if job.teacher_precision == "fp32" else empty_model(description, where)
    whole = empty_model(description, where)
    if keeps_apart(read_facts(job.examples)):
        check_takes_positions(whole, where)
    spread = spread_of_teacher(spread, job.teacher_shards, job.learner)
    model = teacher_over_ranks(
        whole, spread, job.teacher_precision, compiled=bool(job.train.compile), learner=job.learner
    )
    read_weights(model, folder, spread.home, full_model=saved)
    move_buffers(model, spread.device)
    shapes = check_shapes(model, examples, description, spread.device, where, extras)
    _find_head(model, examples, spread.device)
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
        learner: the path in the recipe of what is trained, for errors.

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


def _find_head(model: nn.Module, examples: Examples, device: torch.device) -> None:
    """Detect on the first example whether a language model's logits can be computed for some positions only."""
    if isinstance(model, TextModel):
        training, inputs = model.training, examples.batch(np.zeros(1, dtype=np.int64))[0].to(device)
        model.eval().detect_head(lambda reduce: model(inputs, reduce=reduce))
        model.train(training)
