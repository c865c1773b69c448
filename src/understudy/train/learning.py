"""A model that learns and is asked, as a training's loop sees it; here with each rank holding all layers.

The loop hands over the micro-batches of a step, and knows nothing of who computes what of them. Where ranks hold some
layers each, pipelined.py does the same.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parallel import DataParallel

from understudy.distill.batch import Batch, Mixed
from understudy.distill.objectives import Objective
from understudy.distill.pieces import loss_in_pieces
from understudy.distill.teacher import Teacher
from understudy.models.buffers import unchanged_buffers
from understudy.models.outputs import States
from understudy.parallel.apply import Spread, gradient_sync, reshard, unwrapped
from understudy.train.marks import mark
from understudy.train.optimizers import clip
from understudy.train.precision import autocast

Read = Callable[[States, Tensor], Tensor]
"""What is made of what a model knows of a batch, and of the batch's labels."""


class Part(NamedTuple):
    """A micro-batch of one rank, on its device."""

    inputs: Tensor
    labels: Tensor
    counts: bool
    """False where the rank gets nothing of it: it computes something all the same, since others wait for it."""
    mixed: Mixed | None = None
    positions: Tensor | None = None
    """Where sequences are of several documents: of each token, in its own."""


class Learner(ABC):
    """A model over ranks, with what it learns from."""

    @abstractmethod
    def train(self, *, mode: bool) -> None:
        """Whether it learns, or is measured (torch's train and eval)."""

    @abstractmethod
    def gradients(self, parts: Iterator[Part], count: int, targets: int, scale: float = 1.0) -> Tensor:
        """Gradients of a step, averaged over ranks.

        Args:
            parts: this rank's micro-batches.
            count: how many there are.
            targets: of the whole batch, which the loss is divided by.
            scale: what gradients come out multiplied by.

        Returns:
            This rank's share of the loss, a scalar.
        """

    @abstractmethod
    def clip(self, limit: float | None) -> Tensor:
        """Scale the gradients down to a norm of at most `limit`; the norm before that, on every rank."""

    @abstractmethod
    def ask(self, inputs: Tensor, labels: Tensor, read: Read, positions: Tensor | None = None) -> Tensor | None:
        """What `read` makes of a batch, without gradients; None where another rank's layers have the answer."""

    @abstractmethod
    def rest(self) -> None:
        """Give up what questions have gathered from other ranks."""


class Whole(Learner):
    """Each rank with all layers, whole or in parts.

    Args:
        model: with its copies on other ranks.
        objective: what it learns from.
        learned: the objective over ranks: the same one, where it has no parameters.
        teacher: whom the objective asks.
        spread: over which ranks, and how.
    """

    def __init__(
        self, model: nn.Module, objective: Objective, learned: nn.Module, teacher: Teacher | None, spread: Spread
    ) -> None:
        self._model, self._teacher, self._spread = model, teacher, spread
        self._objective, self._extras = learned, objective.extras
        # DataParallel cuts what it hands on into parts for its devices, and would cut nothing that `read` knows.
        self._by_position = objective.by_position and not isinstance(model, DataParallel)

    def train(self, *, mode: bool) -> None:
        """Of the model; an objective has one mode."""
        self._model.train(mode)

    def gradients(self, parts: Iterator[Part], count: int, targets: int, scale: float = 1.0) -> Tensor:
        """One part after the other: each is let go before the next is read."""
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
                # Gradients are averaged over ranks, the loss is their sum.
                with mark("backward"):
                    torch.autograd.backward(loss * (spread.meshes.gradient.size() * scale))
            total += loss.detach()
        if self._teacher and spread.degrees.zero_stage == 3:  # before, weights are in shards for the optimiser alone
            self._teacher.rest()
        return total

    def _loss(self, part: Part) -> Tensor:
        """Summed over the batch's targets, of this rank's positions."""
        inputs, labels, placed = self._spread.own_positions(part.inputs, part.labels, part.positions)
        batch = Batch(inputs, labels, part.mixed)
        if self._by_position:
            known = None
            if self._teacher:
                with mark("teacher"):
                    known = self._teacher.states(inputs, **placed)
            loss: Tensor = self._model(
                inputs, **placed, read=lambda student: loss_in_pieces(self._objective, student, known, batch)
            )
        else:
            student = self._model(inputs, self._extras, **placed)
            said = None
            if self._teacher:
                with mark("teacher"):
                    said = self._teacher(inputs, **placed)
            loss = self._objective(student, said, batch)
        return loss

    def clip(self, limit: float | None) -> Tensor:
        """Over model and objective together."""
        return clip([*self._model.parameters(), *self._objective.parameters()], limit)

    def ask(self, inputs: Tensor, labels: Tensor, read: Read, positions: Tensor | None = None) -> Tensor:
        """Every rank has the answer of its own positions."""
        inputs, labels, placed = self._spread.own_positions(inputs, labels, positions)
        with torch.no_grad(), autocast(self._spread.precision, self._spread.device):
            said: Tensor = unwrapped(self._model)(inputs, **placed, read=lambda states: read(states, labels))
        return said

    def rest(self) -> None:
        """Shards alone stay."""
        reshard(self._model)
