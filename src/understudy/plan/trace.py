"""Traces of the real training loop on one rank, without memory and without the other ranks.

Models, degrees, schedules, objectives and optimisers are those of the training. torch's FakeTensors replace all
tensors, and its fake process group the other ranks. The result is the rank's memory, computation and traffic.
"""

import gc
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from understudy.data.loader import part_width
from understudy.errors import InputError
from understudy.models.facts import keeps_apart, output_size
from understudy.models.parts import local_tensor
from understudy.objectives.objective import Context, extras_of, objective
from understudy.parallel.apply import Spread
from understudy.plan.attention import attention_of
from understudy.plan.ledger import Ledger, Peak
from understudy.plan.pieces import few_pieces
from understudy.plan.placeholders import PlaceholderExamples
from understudy.plan.planned import Planned
from understudy.plan.rank_models import RankModels, build_models
from understudy.plan.repeated import BlockIncrement, Repeated
from understudy.plan.simulation import simulated_rank
from understudy.plan.trial import try_model, try_names
from understudy.recipe import Degrees
from understudy.recipe.roles import learner_of
from understudy.train.averages import Averages
from understudy.train.learning import Learner, Part
from understudy.train.local_steps import LocalSteps
from understudy.train.optimizers import build_optimizer

PARTS = 2
"""Micro-batches that are traced without a pipeline: further ones repeat the second."""
SEED = 0
"""An arbitrary seed: parameters without memory have no values."""
GRAIN = {"cpu": 64, "cuda": 512}
"""Bytes to which torch's allocators round up."""


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
    student_block: BlockIncrement = field(default_factory=BlockIncrement)
    """The increment for one more block in each of the rank's stages, if the model stands for a deeper one."""
    teacher_blocks: Mapping[str, BlockIncrement] = field(default_factory=dict)
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
    """Build the rank's models, and trace a step of their training."""
    models = build_models(planned, objective(planned.settings.objectives, context), spread, ledger, even=even)
    optimizer = build_optimizer(models.parameters, planned.train.optimizer)
    averages = Averages(optimizer, planned.train.average) if planned.train.average else None
    if planned.train.diloco:  # its state counts, but not the traffic once in many steps
        LocalSteps(optimizer, planned.train.diloco, spread.meshes.replicate.get_group())
    ledger.mark("parameters", models.parameters)
    ledger.mark("optimizer", _state(optimizer))
    student_blocks, teacher_blocks = _repeated(models, optimizer, ledger) if even else ([], {})
    models.learner.train(mode=True)
    count = planned.train.gradient_accumulation_steps
    traced = count if spread.degrees.pp > 1 else min(count, PARTS)
    gc.collect()
    ledger.forget()
    between_steps = ledger.peak()
    _compute_gradients(planned, models.learner, spread, traced, ledger)
    _assign_gradients(models.parameters, student_blocks, ledger)
    ledger.phase, ledger.block = "optimizer step", None
    models.learner.clip(planned.train.max_grad_norm)
    optimizer.step()
    if averages:
        averages.update(0)
    peak = ledger.peak()
    optimizer.zero_grad(set_to_none=True)
    increments = [block.increment(peak, between_steps, optimizer.state, count / traced) for block in student_blocks]
    return Traced(
        peak,
        between_steps.bytes,
        round(ledger.flops * count / traced),
        {kind: round(size * count / traced) for kind, size in ledger.traffic.items()},
        sum(local_tensor(tensor).nbytes for tensor in (*models.parameters, *_state(optimizer))),
        sum(increments, BlockIncrement()),
        {name: block.increment(peak, between_steps, None, count / traced) for name, block in teacher_blocks.items()},
    )


def _compute_gradients(planned: Planned, learner: Learner, spread: Spread, traced: int, ledger: Ledger) -> None:
    """Trace the forward and backward passes of a step's first `traced` micro-batches."""
    batch, count = spread.meshes.batch, planned.train.gradient_accumulation_steps
    width = part_width(planned.train.batch_size, batch.size(), count)
    ledger.phase = "forward and backward"
    parts = (_part(planned.examples, width, ledger) for _ in range(traced))
    with few_pieces(ledger):
        learner.gradients(parts, traced, count * width)


def _repeated(models: RankModels, optimizer: Optimizer, ledger: Ledger) -> tuple[list[Repeated], dict[str, Repeated]]:
    """The blocks of each stage, with the tensors of their weights, and each teacher's blocks."""
    student_blocks = [Repeated(ledger, block) for block in models.student_blocks]
    teacher_blocks = {name: Repeated(ledger, block) for name, block in models.teacher_blocks.items()}
    for block in student_blocks:
        block.assign(optimizer.state)
        block.assign(models.buckets)
    return student_blocks, teacher_blocks


def _assign_gradients(parameters: list[nn.Parameter], student_blocks: list[Repeated], ledger: Ledger) -> None:
    """Assign each gradient to the block of its weight, if there is one."""
    gradients = [weight.grad for weight in parameters if weight.grad is not None]
    ledger.mark("gradients", gradients)
    ledger.assign(None, gradients)
    for block in student_blocks:
        block.assign({})


def _part(examples: PlaceholderExamples, width: int, ledger: Ledger) -> Part:
    indices = np.zeros(width, dtype=np.int64)
    inputs, labels = examples.batch(indices)
    positions = examples.positions(indices)
    ledger.mark("data", [tensor for tensor in (inputs, labels, positions) if tensor is not None])
    return Part(inputs, labels, counts=True, positions=positions)


def _state(optimizer: Optimizer) -> list[Tensor]:
    return [value for state in optimizer.state.values() for value in state.values() if isinstance(value, Tensor)]
