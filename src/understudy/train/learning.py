"""A model in training and inference, as the training loop sees it; in this module each rank has all layers.

The loop passes the micro-batches of a step, and does not depend on which rank computes which part of them. For ranks
with some of the layers each, pipelined.py does the same.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parallel import DataParallel

from understudy.models.buffers import unchanged_buffers
from understudy.models.outputs import States
from understudy.objectives.batch import Batch, Mixed
from understudy.objectives.objective import Objective
from understudy.objectives.pieces import loss_in_pieces
from understudy.parallel.apply import Spread, gradient_sync, reshard, unwrapped
from understudy.teachers.teacher import Teacher
from understudy.train.marks import mark
from understudy.train.optimizers import clip
from understudy.train.precision import autocast

Reduce = Callable[[States, Tensor], Tensor]
"""From a model's states of a batch, and the batch's labels, to the result."""


class Part(NamedTuple):
    """A micro-batch of one rank, on its device."""

    inputs: Tensor
    labels: Tensor
    counts: bool
    """False for a rank without examples: it computes something all the same, since others wait for it."""
    mixed: Mixed | None = None
    positions: Tensor | None = None
    """Each token's position in its document, where sequences consist of several."""
    indices: Tensor | None = None
    """The examples' indices in the training split, int64 (B,) on the CPU."""


class Learner(ABC):
    """A model over ranks, with its objective."""

    @abstractmethod
    def train(self, *, mode: bool) -> None:
        """Set training or evaluation mode (torch's train and eval)."""

    @abstractmethod
    def begin_step(self, step: int, steps: int) -> None:
        """Prepare for a step, counted from 0, of a training of `steps` steps."""

    @abstractmethod
    def gradients(self, parts: Iterator[Part], count: int, targets: int, scale: float = 1.0) -> Tensor:
        """Compute a step's gradients, averaged over ranks.

        Args:
            parts: this rank's micro-batches.
            count: their number.
            targets: of the whole batch, by which the loss is divided.
            scale: factor of the gradients.

        Returns:
            This rank's share of the loss, a scalar.
        """

    @abstractmethod
    def clip(self, limit: float | None) -> Tensor:
        """Clip the gradients to a norm of at most `limit`; return the norm before, on every rank."""

    @abstractmethod
    def evaluate(
        self, inputs: Tensor, labels: Tensor, reduce: Reduce, positions: Tensor | None = None
    ) -> Tensor | None:
        """The result of `reduce` for a batch, without gradients; None where another rank has it."""

    @abstractmethod
    def reshard(self) -> None:
        """Free all-gathered parameters."""


class Whole(Learner):
    """A learner with all layers on each rank, whole or split.

    Args:
        model: replicated over ranks.
        objective: its objective.
        learned: the objective over ranks: the same object, if it has no parameters.
        teachers: its teachers.
        spread: the distribution over ranks.
    """

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        wrapped_objective: nn.Module,
        teachers: Sequence[Teacher],
        spread: Spread,
    ) -> None:
        self._model, self._teachers, self._spread = model, teachers, spread
        self._objective, self._extras = wrapped_objective, objective.extras
        self._begin_step = objective.begin_step
        # DataParallel splits its arguments over devices, but not the tensors that `read` closes over.
        self._by_position = objective.by_position and not isinstance(model, DataParallel)

    def train(self, *, mode: bool) -> None:
        """Set the model's mode; an objective has only one."""
        self._model.train(mode)

    def begin_step(self, step: int, steps: int) -> None:
        """Set the step of the objective."""
        self._begin_step(step, steps, self._spread.device)

    def gradients(self, parts: Iterator[Part], count: int, targets: int, scale: float = 1.0) -> Tensor:
        """One micro-batch after the other: each is freed before the next is read."""
        spread, total = self._spread, torch.zeros((), device=self._spread.device)
        for number, part in enumerate(parts, 1):
            last = number == count
            with (
                gradient_sync(self._model, spread.degrees, last),
                gradient_sync(self._objective, spread.degrees, last),
                nullcontext() if part.counts else unchanged_buffers(self._model, self._objective),
            ):
                with mark("forward"), autocast(spread.precision, spread.device):
                    loss = self._loss(part) / targets
                if not part.counts:
                    loss = loss * 0.0
                # Gradients are averaged over ranks, the loss is summed over them.
                with mark("backward"):
                    torch.autograd.backward(loss * (spread.meshes.gradient.size() * scale))
            total += loss.detach()
        for teacher in self._teachers if spread.degrees.zero_stage == 3 else ():  # below, weights stay gathered
            teacher.reshard()
        return total

    def _loss(self, part: Part) -> Tensor:
        """The loss, summed over the targets at this rank's positions."""
        inputs, labels, placed = self._spread.own_positions(part.inputs, part.labels, part.positions)
        batch = Batch(inputs, labels, part.mixed, part.indices, placed)
        if self._by_position:
            with mark("teacher") if self._teachers else nullcontext():
                states = [teacher.states(batch) for teacher in self._teachers]
            loss: Tensor = self._model(
                inputs, **placed, reduce=lambda student: loss_in_pieces(self._objective, student, states, batch)
            )
        else:
            student = self._model(inputs, self._extras, **placed)
            with mark("teacher") if self._teachers else nullcontext():
                outputs = tuple(teacher.outputs(batch) for teacher in self._teachers)
            loss = self._objective(student, outputs, batch)
        return loss

    def clip(self, limit: float | None) -> Tensor:
        """Clip model and objective together."""
        return clip([*self._model.parameters(), *self._objective.parameters()], limit)

    def evaluate(self, inputs: Tensor, labels: Tensor, reduce: Reduce, positions: Tensor | None = None) -> Tensor:
        """The result for this rank's positions."""
        inputs, labels, placed = self._spread.own_positions(inputs, labels, positions)
        with torch.no_grad(), autocast(self._spread.precision, self._spread.device):
            result: Tensor = unwrapped(self._model)(inputs, **placed, reduce=lambda states: reduce(states, labels))
        return result

    def reshard(self) -> None:
        """Free all but the shards."""
        reshard(self._model)
