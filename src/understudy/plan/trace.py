"""Traces of the real training loop on one rank, without memory and without the other ranks.

Models, degrees, schedules, objectives and optimisers are those of the training. torch's FakeTensors replace all
tensors, and its fake process group the other ranks. The result is the rank's memory, computation and traffic.
"""

import gc
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._python_dispatch import _disable_current_modes

from understudy.data.loader import part_width
from understudy.errors import InputError
from understudy.jobs.payload import TrainingSettings
from understudy.models.adapters import add_adapters
from understudy.models.build import uninitialized_model
from understudy.models.facts import Description, keeps_apart, output_size
from understudy.models.float8 import convert_to_float8
from understudy.models.parts import local_tensor
from understudy.models.tasks import TextModel
from understudy.objectives.objective import Context, Objective, extras_of, objective
from understudy.parallel.apply import Spread
from understudy.parallel.blocks import blocks
from understudy.parallel.layout import EXAMPLES, Layout, layout
from understudy.parallel.savers import Savers
from understudy.plan.attention import attention_of
from understudy.plan.copies import Copies
from understudy.plan.ledger import Ledger, Peak
from understudy.plan.pieces import few_pieces
from understudy.plan.placeholders import PlaceholderExamples
from understudy.plan.repeated import Further, Repeated
from understudy.plan.simulation import simulated_rank
from understudy.plan.trial import try_model, try_names
from understudy.recipe import Degrees, Train
from understudy.recipe.objectives import Extra
from understudy.recipe.roles import learner_of, section_of
from understudy.teachers.in_memory import ModelTeacher
from understudy.teachers.teacher import Teacher
from understudy.train.averages import Averages
from understudy.train.frozen_teachers import spread_of_teacher, teacher_over_ranks
from understudy.train.learning import Learner, Part, Whole
from understudy.train.local_steps import LocalSteps
from understudy.train.optimizers import optimizer
from understudy.train.pipelined import Pipelined
from understudy.train.staged import cut_into_stages

PARTS = 2
"""Micro-batches that are traced without a pipeline: further ones repeat the second."""
SEED = 0
"""An arbitrary seed: parameters without memory have no values."""
GRAIN = {"cpu": 64, "cuda": 512}
"""Bytes to which torch's allocators round up."""
_layouts: dict[tuple[str, str, tuple[int, ...]], Layout] = {}
"""Layouts of models, by description, recipe path and input shape."""


@dataclass(frozen=True)
class Planned:
    """A training, with descriptions of its models and placeholders for its data."""

    settings: TrainingSettings
    model: Description
    teachers: Mapping[str, Description]
    """By name, in the recipe's order."""
    examples: PlaceholderExamples

    @property
    def train(self) -> Train:
        """The settings of the loop."""
        return self.settings.train


@dataclass(frozen=True)
class Traced:
    """A rank's memory, computation and traffic in a step."""

    peak: Peak
    resident: int
    """Bytes between steps: weights, optimiser, teachers."""
    flops: int
    """Floating-point operations of matrix products and attention."""
    traffic: Mapping[tuple[str, tuple[int, ...]], int]
    """Bytes handed to collectives in a step, by operation and ranks."""
    state: int
    """Bytes of weights and optimiser state, as in a checkpoint."""
    student_block: Further = field(default_factory=Further)
    """The increment for one more block in each of the rank's stages, if the model stands for a deeper one."""
    teacher_blocks: Mapping[str, Further] = field(default_factory=dict)
    """The same for each teacher, by name."""


def trace(
    planned: Planned, degrees: Degrees, rank: int, device: str, precision: torch.dtype, *, even: bool = False
) -> Traced:
    """Trace one rank.

    Args:
        planned: the training.
        degrees: its degrees.
        rank: all ranks of a stage are alike.
        device: cpu or cuda, for its allocator.
        precision: of matrix products.
        even: whether all stages have the same number of blocks, regardless of other layers.

    Raises:
        InputError: the model cannot be spread with these degrees, or a part of it is offloaded.
    """
    if planned.train.offload:
        path = f"{planned.settings.train_path}.offload"
        raise InputError(f"{path}: offloaded memory is not planned; leave it out to plan")
    facts = planned.examples.facts
    vocabulary = output_size(facts)
    ledger = Ledger(vocabulary, GRAIN[device])
    simulated = simulated_rank(planned.train, degrees, rank, precision)
    with simulated as spread, attention_of(device, packed=keeps_apart(facts)):
        context = _try_models(planned, spread)
        with ledger.watching():
            return _traced(planned, context, spread, ledger, even=even)


def traces(
    planned: Planned, degrees: Degrees, device: str, precision: torch.dtype, *, even: bool = False
) -> list[Traced]:
    """The trace of one rank of each stage, whose ranks are all alike. See trace()."""
    stage = degrees.world_size // degrees.pp
    return [trace(planned, degrees, number * stage, device, precision, even=even) for number in range(degrees.pp)]


def laid_out(planned: Planned, degrees: Degrees) -> Layout:
    """The layout by which stages are cut."""
    with simulated_rank(planned.train, degrees, 0, torch.float32) as spread:
        return _layout(planned, spread)


def _layout(planned: Planned, spread: Spread) -> Layout:
    """Computed once for each model and sequence length; other degrees do not change it."""
    shown, _, _ = spread.own_positions(*planned.examples.batch(np.zeros(EXAMPLES, dtype=np.int64)))
    path = planned.settings.train_path
    key = json.dumps(planned.model, sort_keys=True), path, tuple(shown.shape)
    if key not in _layouts:
        _layouts[key] = layout(uninitialized_model(planned.model, path), shown, path)
    return _layouts[key]


def _try_models(planned: Planned, spread: Spread) -> Context:
    """The context of the training's objective, after a trial of its models."""
    section, objectives = planned.settings.path, planned.settings.objectives
    student = try_model(planned.model, planned.examples, extras_of(objectives), section, spread, planned.train)
    teachers = {
        name: try_model(teacher, planned.examples, extras_of(objectives), learner_of(name), spread, None)
        for name, teacher in planned.teachers.items()
    }
    context = Context(planned.train, SEED, student, teachers, f"{section}.distill")
    try_names(planned.model, objective(objectives, context), planned.train, section)
    return context


def _traced(planned: Planned, context: Context, spread: Spread, ledger: Ledger, *, even: bool) -> Traced:
    student_objective = objective(planned.settings.objectives, context)
    models = _learner(planned, student_objective, spread, ledger, even=even)
    parameters, learner = models.parameters, models.learner
    chosen = optimizer(parameters, planned.train.optimizer)
    averages = Averages(chosen, planned.train.average) if planned.train.average else None
    if planned.train.diloco:  # its state counts, but not the traffic once in many steps
        LocalSteps(chosen, planned.train.diloco, spread.meshes.replicate.get_group())
    ledger.mark("parameters", parameters)
    ledger.mark("optimizer", _state(chosen))
    student_blocks, teacher_blocks = _repeated(models, chosen, ledger) if even else ([], {})
    learner.train(mode=True)
    batch, count = spread.meshes.batch, planned.train.gradient_accumulation_steps
    width = part_width(planned.train.batch_size, batch.size(), count)
    traced = count if spread.degrees.pp > 1 else min(count, PARTS)
    gc.collect()
    ledger.forget()
    between = ledger.peak()
    ledger.phase = "forward and backward"
    parts = (_part(planned.examples, width, ledger) for _ in range(traced))
    with few_pieces(ledger):
        learner.gradients(parts, traced, count * width)
    _assign_gradients(parameters, student_blocks, ledger)
    ledger.phase, ledger.block = "optimizer step", None
    learner.clip(planned.train.max_grad_norm)
    chosen.step()
    if averages:
        averages.update(0)
    peak = ledger.peak()
    chosen.zero_grad(set_to_none=True)
    return Traced(
        peak,
        between.bytes,
        round(ledger.flops * count / traced),
        {kind: round(size * count / traced) for kind, size in ledger.traffic.items()},
        sum(local_tensor(tensor).nbytes for tensor in (*parameters, *_state(chosen))),
        sum((block.further(peak, between, chosen.state, count / traced) for block in student_blocks), Further()),
        {name: block.further(peak, between, None, count / traced) for name, block in teacher_blocks.items()},
    )


@dataclass(frozen=True)
class _Models:
    """A rank's part of a training."""

    parameters: list[nn.Parameter]
    """Of its layers, and of the objective."""
    learner: Learner
    blocks: list[list[nn.Module]]
    """Of each of its stages."""
    teacher_blocks: Mapping[str, list[nn.Module]]
    """By the teacher's name."""
    buckets: Mapping[nn.Parameter, Mapping[str, Tensor]]


def _learner(planned: Planned, student_objective: Objective, spread: Spread, ledger: Ledger, *, even: bool) -> _Models:
    """The rank's part of the model, and the learner over all ranks."""
    train, where = planned.train, planned.settings.train_path
    model = uninitialized_model(planned.model, where)
    staged = None
    if train.lora:
        add_adapters(model, train.lora, where)
    if train.precision == "fp8":
        convert_to_float8(model, where)
    if spread.degrees.pp > 1:
        stage_layout = _layout(planned, spread)
        if even:
            stage_layout = replace(stage_layout, first=0, last=0)
        staged = cut_into_stages(model, stage_layout, planned.examples, spread, train, where)
        module = staged.settle(spread.device)
        for stage in staged.stages.values():
            _allow_partial_head(stage.model)
    else:
        module = model = spread.over_ranks(model, train.tensor_plan, where, Savers(train.activation_checkpointing))
        _allow_partial_head(model)
    teachers, teacher_blocks = _teachers(planned, spread, student_objective.extras, ledger)
    if staged:
        student_blocks = [_with_weights(stage.model) for stage in staged.stages.values()]
        pipelined = Pipelined(staged, module, student_objective, teachers, spread)
        return _Models(list(module.parameters()), pipelined, student_blocks, teacher_blocks, {})
    student_blocks = [_with_weights(model)]
    buckets: Mapping[nn.Parameter, Mapping[str, Tensor]] = {}
    is_trained = bool(list(student_objective.parameters()))
    wrapped_objective: nn.Module = spread.sharded(student_objective) if is_trained else student_objective
    if spread.meshes.replicate.size() > 1 and not spread.wraps and not train.diloco:
        module = copies = Copies(module)
        buckets = copies.buckets
        wrapped_objective = Copies(student_objective) if is_trained else student_objective
    parameters = [*module.parameters(), *wrapped_objective.parameters()]
    learner = Whole(module, student_objective, wrapped_objective, teachers, spread)
    return _Models(parameters, learner, student_blocks, teacher_blocks, buckets)


def _repeated(models: _Models, chosen: Optimizer, ledger: Ledger) -> tuple[list[Repeated], dict[str, Repeated]]:
    """The blocks of each stage, with the tensors of their weights, and each teacher's blocks."""
    student_blocks = [Repeated(ledger, block) for block in models.blocks]
    teacher_blocks = {name: Repeated(ledger, block) for name, block in models.teacher_blocks.items()}
    for block in student_blocks:
        block.assign(chosen.state)
        block.assign(models.buckets)
    return student_blocks, teacher_blocks


def _assign_gradients(parameters: list[nn.Parameter], student_blocks: list[Repeated], ledger: Ledger) -> None:
    """Assign each gradient to the block of its weight, if there is one."""
    gradients = [weight.grad for weight in parameters if weight.grad is not None]
    ledger.mark("gradients", gradients)
    ledger.assign(None, gradients)
    for each in student_blocks:
        each.assign({})


def _with_weights(model: nn.Module) -> list[nn.Module]:
    """A model's blocks, without those of other stages."""
    return [block for block in blocks(model) if next(block.parameters(), None) is not None]


def _teachers(
    planned: Planned, spread: Spread, extras: frozenset[Extra], ledger: Ledger
) -> tuple[list[Teacher], dict[str, list[nn.Module]]]:
    """The teachers, and their blocks by name."""
    teachers, teacher_blocks = list[Teacher](), {}
    settings = planned.settings
    for name, description in planned.teachers.items():
        network = uninitialized_model(description, section_of(name))
        with _disable_current_modes():  # its meshes need real tensors of ranks
            inference = spread_of_teacher(spread, settings.teacher_shards, settings.learner)
        model = teacher_over_ranks(network, inference, settings.teacher_precision, learner=settings.learner)
        _allow_partial_head(model)
        ledger.mark("teacher", model.parameters())
        teachers.append(ModelTeacher(model, extras))
        teacher_blocks[name] = _with_weights(model)
    return teachers, teacher_blocks


def _allow_partial_head(model: nn.Module) -> None:
    """Let the head run on some positions alone: the check for it compares values, which FakeTensors lack."""
    if isinstance(model, TextModel):
        model.separate_head()


def _part(examples: PlaceholderExamples, width: int, ledger: Ledger) -> Part:
    indices = np.zeros(width, dtype=np.int64)
    inputs, labels = examples.batch(indices)
    positions = examples.positions(indices)
    ledger.mark("data", [tensor for tensor in (inputs, labels, positions) if tensor is not None])
    return Part(inputs, labels, counts=True, positions=positions)


def _state(chosen: Optimizer) -> list[Tensor]:
    return [value for state in chosen.state.values() for value in state.values() if isinstance(value, Tensor)]
