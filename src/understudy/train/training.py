"""All parts of a training run, and the points of its curve."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NotRequired, TypedDict

import torch
from torch import nn
from torch.optim import Optimizer

from understudy.data.augmentation import Augmentation
from understudy.data.loader import Examples, Order
from understudy.parallel.apply import Spread
from understudy.parallel.checkpoint import Checkpoints
from understudy.recipe import Train
from understudy.train.averages import Averages
from understudy.train.guard import Guard, GuardState, Mark
from understudy.train.learning import Learner
from understudy.train.local_steps import LocalSteps
from understudy.train.loss_scale import LossScale, LossScaleState, Overflow
from understudy.train.validation import Validation

if TYPE_CHECKING:  # the format of a job's specification is no part of a training's step key
    from understudy.jobs.payload import TrainingJob


class Marks(Mark, Overflow):
    """The marks of an exceptional step."""


class Point(Marks):
    """One step on the training curve."""

    step: int
    loss: float | None
    """None where it was not finite, in a skipped step; the gradient norm, too."""
    learning_rate: float
    grad_norm: float | None
    validation_loss: NotRequired[float]
    validation_accuracy: NotRequired[float]


class Progress(TypedDict):
    """A checkpoint's contents besides model and optimiser."""

    history: list[Point]
    guard: NotRequired[GuardState]
    loss_scale: NotRequired[LossScaleState]


@dataclass(frozen=True)
class Course:
    """Properties of a training's steps, fixed before the first."""

    steps: int
    device: torch.device
    precision: torch.dtype
    """Type of matrix multiplications."""
    targets: Callable[[int], int]
    """Images or tokens of a step, counted from 0, over all ranks."""


Around = Callable[[int], AbstractContextManager[None]]
"""From a step, counted from 0, to its context: a profiler's, for example."""


def nothing(step: int) -> AbstractContextManager[None]:
    """The context of a step that is not recorded."""
    del step
    return nullcontext()


@dataclass
class Training:
    """All parts of a training run."""

    job: "TrainingJob"
    model: nn.Module
    """This rank's layers."""
    learner: Learner
    """The model on all ranks, with its objective."""
    optimizer: Optimizer
    averages: Averages | None
    """The EMA of the weights, if requested."""
    local_steps: LocalSteps | None
    """For replicas that train independently."""
    examples: Examples
    augmentation: Augmentation | None
    """Random changes of the inputs."""
    order: Order
    steps: int
    spread: Spread
    """The distribution over ranks."""
    validation: Validation | None
    guard: Guard | None
    """Skips harmful steps."""
    loss_scale: LossScale | None
    """For gradients in fp16."""
    checkpoints: Checkpoints
    must_stop: Callable[[], bool]
    """Called on every rank after each report; if true on any, all stop at a checkpoint."""
    heartbeat: Callable[[int], None]
    """Called on every rank with the steps done, as often as report."""
    report: Callable[[list[Point], float], None]
    """Called on the first rank with the points since the last call and the seconds that they took."""
    around_step: Around = nothing
    history: list[Point] = field(default_factory=list)

    @property
    def settings(self) -> Train:
        """The recipe's settings."""
        return self.job.train

    @property
    def seed(self) -> int:
        """The recipe's seed."""
        return self.job.seed

    @property
    def is_over(self) -> bool:
        """Whether it ends early."""
        return self.validation is not None and self.validation.is_over(self.history)
