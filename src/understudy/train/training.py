"""Everything that a training run consists of, and what it leaves: the points of its curve."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import NotRequired, TypedDict

import torch
from torch import nn
from torch.optim import Optimizer

from understudy.data.augmentation import Augmentation
from understudy.data.loader import Examples, Order
from understudy.parallel.apply import Spread
from understudy.parallel.checkpoint import Checkpoints
from understudy.recipe import Train
from understudy.train.averages import Averages
from understudy.train.guard import Guard, Kept, Mark
from understudy.train.learning import Learner
from understudy.train.local_steps import LocalSteps
from understudy.train.loss_scale import KeptScale, LossScale, Overflow
from understudy.train.validation import Validation


class Marks(Mark, Overflow):
    """What is noted of a step that was not like others."""


class Point(Marks):
    """One step on the training curve."""

    step: int
    loss: float | None
    """None where it was not finite, in a step that was skipped; the gradient's norm too."""
    learning_rate: float
    grad_norm: float | None
    validation_loss: NotRequired[float]
    validation_accuracy: NotRequired[float]


class Progress(TypedDict):
    """What a checkpoint holds beside model and optimiser."""

    history: list[Point]
    guard: NotRequired[Kept]
    loss_scale: NotRequired[KeptScale]


@dataclass(frozen=True)
class Course:
    """What is known of a training's steps before the first of them."""

    steps: int
    device: torch.device
    precision: torch.dtype
    """Of matrix products."""
    targets: Callable[[int], int]
    """Images or tokens of a step, counted from 0, over all ranks."""


Around = Callable[[int], AbstractContextManager[None]]
"""What each step is taken in, counted from 0: someone records it, perhaps."""


def nothing(step: int) -> AbstractContextManager[None]:
    """Nobody records a step."""
    del step
    return nullcontext()


@dataclass
class Training:
    """Everything that a training run consists of."""

    model: nn.Module
    """This rank's layers."""
    learner: Learner
    """The model on all ranks, with what it learns from."""
    optimizer: Optimizer
    averages: Averages | None
    """Of the weights, where they are what is wanted."""
    local_steps: LocalSteps | None
    """Where replicas train apart."""
    examples: Examples
    augmentation: Augmentation | None
    """What changes inputs at random."""
    order: Order
    settings: Train
    steps: int
    seed: int
    spread: Spread
    """Over which ranks, and how."""
    validation: Validation | None
    guard: Guard | None
    """What keeps steps that would hurt from being taken."""
    loss_scale: LossScale | None
    """Where gradients are computed in fp16."""
    checkpoints: Checkpoints
    must_stop: Callable[[], bool]
    """Asked on every rank after each report; one that says yes stops all of them, at a checkpoint."""
    heartbeat: Callable[[int], None]
    """Called on every rank with the steps done, as often as report."""
    report: Callable[[list[Point], float], None]
    """Called on the first rank with the points since the last call and the seconds that they took."""
    around_step: Around = nothing
    history: list[Point] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        """Whether it ends before its last step."""
        return self.validation is not None and self.validation.is_over(self.history)
