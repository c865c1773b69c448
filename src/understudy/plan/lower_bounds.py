"""Lower bounds of a job's memory and disk space, by which it may be refused before it begins.

Only certain needs count. Activations and libraries come on top, so a job that passes may still run out of memory (OOM).
Nothing here imports torch.
"""

from dataclasses import dataclass
from typing import Literal

from understudy.jobs.payload import TrainingSettings
from understudy.recipe import Degrees, Optimizer, TeacherPrecision, Train

AT_ONCE = 3
"""Most checkpoints in a training's folder: two that are kept (parallel/checkpoint.py), and one being written."""

OUTER = 2
"""Numbers per weight that DiLoCo's replicas share: the outer weight and its momentum."""


SMALLER: dict[TeacherPrecision, int] = {"fp32": 1, "bf16": 2, "int8": 4, "nf4": 8}
"""Largest divisor of a model's bytes: with int8 and nf4 some weights keep their precision."""


@dataclass(frozen=True)
class Held:
    """Bytes of one copy of a training's weights; 0 if unknown before it begins."""

    model: int
    teacher: int


def training_memory(settings: TrainingSettings, degrees: Degrees, device: Literal["cpu", "cuda"], weights: Held) -> int:
    """Lower bound of the nodes' memory in bytes, over all ranks of a training.

    The peak is while gradients exist, or while the last checkpoint is written, for which every rank copies its part.

    Args:
        settings: the training, from the recipe.
        degrees: its degrees; each of `dp_replicate` copies is complete, however it is sharded.
        device: where ranks compute. On GPUs, offloaded parameters and a checkpoint's copy are in the nodes' memory.
        weights: the weights.
    """
    train = settings.train
    state, gradients = _state(train, weights.model), _trained(train, weights.model)
    if device == "cuda" and "parameters" not in train.offload:
        return degrees.dp_replicate * state
    model = degrees.dp_replicate * (state + max(state, gradients))
    if not weights.teacher:  # a training without one may have degrees that teacher_shards does not divide
        return model
    teacher_degrees = degrees.of_teacher(settings.teacher_shards)
    # Whole copies of the teacher beside a student in shards stay on the GPUs (Spread.for_questions).
    teachers = (
        teacher_degrees.dp_replicate if device == "cpu" or teacher_degrees == degrees or teacher_degrees.shards else 0
    )
    return model + teachers * (weights.teacher // SMALLER[settings.teacher_precision])


def training_disk(train: Train, model: int) -> int:
    """Lower bound of the bytes that a training has on disk at the same time.

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
    """Bytes of a finished model: in the job's folder, and as a copy in the store."""
    return 2 * model


def evaluation_memory(degrees: Degrees, device: Literal["cpu", "cuda"], models: int) -> int:
    """Lower bound of the nodes' memory in bytes, over all ranks of an evaluation.

    Args:
        degrees: its degrees.
        device: where ranks compute.
        models: bytes of all models' weights together.
    """
    return degrees.dp_replicate * models if device == "cpu" else 0


def saves(train: Train) -> int | None:
    """The number of checkpoints of a training that is not interrupted or stopped early; None if it counts epochs."""
    if train.steps is None:
        return None
    return -(-train.steps // train.checkpoint_every) + (train.guard is not None)


def _state(train: Train, model: int) -> int:
    """Bytes of weights and optimiser state, as in a checkpoint."""
    copies = moments(train.optimizer) + (train.average is not None) + OUTER * (train.diloco is not None)
    return _weights(train, model) + int(copies * _trained(train, model))


def moments(optimizer: Optimizer) -> float:
    """Lower bound of an optimiser's bytes for each byte of an fp32 weight."""
    if optimizer.name == "sgd":
        return float(optimizer.momentum > 0)
    return {"adamw": 2.0, "adamw8bit": 0.5}[optimizer.name]


def _weights(train: Train, model: int) -> int:
    """Bytes of the weights in a training; frozen weights may be in a lower precision."""
    return model // SMALLER[train.lora.frozen_precision] if train.lora else model


def _trained(train: Train, model: int) -> int:
    """Bytes of the weights that have gradients; adapters are small and not counted."""
    return 0 if train.lora else model
