"""The least that a job takes, by which it may be refused before it begins: what is not certain is not counted.

Activations and libraries come on top, so a job that passes may run out of memory all the same. Nothing here imports
torch.
"""

from dataclasses import dataclass
from typing import Literal

from understudy.recipe import Degrees, Optimizer, TeacherPrecision, Train

AT_ONCE = 3
"""Checkpoints in a training's folder, at most: two that are kept (parallel/checkpoint.py), and one being written."""

OUTER = 2
"""Numbers for each weight that replicas which train apart keep together: the outer weight and its momentum."""


SMALLER: dict[TeacherPrecision, int] = {"fp32": 1, "bf16": 2, "int8": 4, "nf4": 8}
"""What a model's bytes are at most divided by: with int8 and nf4 some of its weights stay as they are."""


@dataclass(frozen=True)
class Held:
    """Bytes of the weights that a training holds, once; 0 of what is not known before it begins."""

    model: int
    teacher: int


def training_memory(
    train: Train,
    found: Degrees,
    device: Literal["cpu", "cuda"],
    teacher_precision: TeacherPrecision,
    held: Held,
    teacher_shards: int | None = None,
) -> int:
    """Bytes of the nodes' memory that all ranks of a training hold together, at the least.

    They are most when it has gradients, or when its last checkpoint is written, which every rank copies its part for.

    Args:
        train: the recipe's settings.
        found: its degrees; each of `dp_replicate` copies is whole, whatever parts it is in.
        device: where ranks compute. On GPUs what is offloaded, and a checkpoint's copy, is in the nodes' memory.
        teacher_precision: what the teacher is kept in.
        held: the weights.
        teacher_shards: how many ranks hold a copy of the teacher together.
    """
    state, gradients = _state(train, held.model), _trained(train, held.model)
    if device == "cuda" and "parameters" not in train.offload:
        return found.dp_replicate * state
    teachers = found.of_teacher(teacher_shards).dp_replicate
    teacher = held.teacher // SMALLER[teacher_precision]
    return found.dp_replicate * (state + max(state, gradients)) + teachers * teacher


def training_disk(train: Train, model: int) -> int:
    """Bytes that a training writes before it ends, at the least, while all of them are there.

    Args:
        train: the recipe's settings.
        model: bytes of its weights.
    """
    # A guard leaves checkpoints out after skipped steps, and patience may end a training at any validation.
    count = 1 if train.guard or train.patience else saves(train) or 1
    running = min(count, AT_ONCE) * _state(train, model)
    ending = min(count, AT_ONCE - 1) * _state(train, model) + (model if train.keep_best else 0) + taken_over(model)
    return max(running, ending)


def taken_over(model: int) -> int:
    """Bytes of a finished model, in the job's folder and in the copy that goes into the store."""
    return 2 * model


def evaluation_memory(found: Degrees, device: Literal["cpu", "cuda"], models: int) -> int:
    """Bytes of the nodes' memory that all ranks of an evaluation hold together, at the least.

    Args:
        found: its degrees.
        device: where ranks compute.
        models: bytes of the weights of all models together.
    """
    return found.dp_replicate * models if device == "cpu" else 0


def saves(train: Train) -> int | None:
    """How many checkpoints a training writes that is neither interrupted nor over early; None where it has epochs."""
    if train.steps is None:
        return None
    return -(-train.steps // train.checkpoint_every) + (train.guard is not None)


def _state(train: Train, model: int) -> int:
    """Bytes of weights and optimiser, of which a checkpoint is a copy."""
    copies = moments(train.optimizer) + (train.average is not None) + OUTER * (train.diloco is not None)
    return _weights(train, model) + int(copies * _trained(train, model))


def moments(optimizer: Optimizer) -> float:
    """How many bytes an optimiser keeps at the least for each byte of a weight in fp32."""
    if optimizer.name == "sgd":
        return float(optimizer.momentum > 0)
    return {"adamw": 2.0, "adamw8bit": 0.5}[optimizer.name]


def _weights(train: Train, model: int) -> int:
    """Bytes of the weights in a training, of which those that stay frozen may be kept in fewer."""
    return model // SMALLER[train.lora.frozen_precision] if train.lora else model


def _trained(train: Train, model: int) -> int:
    """Bytes of the weights that have gradients; of adapters, which are small, none are counted."""
    return 0 if train.lora else model
