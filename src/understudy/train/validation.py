"""Validation during a training: what the model loses on examples that it does not learn from, and what follows from it.

The numbers are the same under every strategy, and all ranks have the same: they decide by them without asking.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from understudy.data.loader import IGNORED, Examples
from understudy.distill.labels import cross_entropy
from understudy.models.outputs import States
from understudy.parallel.apply import Spread
from understudy.train.learning import Learner
from understudy.train.validated import Curve, first_least, losses

TOLD = 5.0  # seconds


class Measured(NamedTuple):
    """What a model does on the validation split."""

    loss: float
    """Nats a target: cross-entropy of the labels, whatever the model learns from."""
    accuracy: float


@dataclass(frozen=True)
class Validation:
    """When a training is validated, on what, and what follows."""

    examples: Examples
    batch_size: int
    """Over all processes that read."""
    every: int
    """In steps; the last step is always validated."""
    keep_best: bool
    """Whether the finished model is the one that lost least."""
    patience: int | None
    """After how many times without a smaller loss a training ends early."""

    def is_due(self, step: int, steps: int) -> bool:
        """Whether the model is measured after so many steps."""
        return step % self.every == 0 or step == steps

    def is_over(self, curve: Curve) -> bool:
        """Whether a training ends early."""
        found = [loss for _, loss in losses(curve)]
        return self.patience is not None and bool(found) and len(found) - 1 - first_least(found) >= self.patience

    def measure(self, learner: Learner, spread: Spread, alive: Callable[[], None]) -> Measured:
        """Loss and accuracy on all examples, of a model that learns. To be called on every rank.

        Args:
            learner: the model.
            spread: over which ranks, and how.
            alive: called now and then: a large split takes longer than a step.
        """
        batch = spread.meshes.batch
        width = max(1, self.batch_size // batch.size())
        sums = torch.zeros(3, dtype=torch.double, device=spread.device)
        told = time.monotonic()
        learner.train(mode=False)
        for first in range(0, len(self.examples), width * batch.size()):
            start = first + batch.get_local_rank() * width
            indices = np.arange(start, min(start + width, len(self.examples)))
            # Who has nothing left is asked for one example all the same, and counts none: the others wait for it.
            shown = indices if len(indices) else np.zeros(1, dtype=np.int64)
            inputs, labels = (tensor.to(spread.device) for tensor in self.examples.batch(shown))
            positions = self.examples.positions(shown)
            if positions is not None:
                positions = positions.to(spread.device)
            found = learner.ask(inputs, labels, _in_pieces, positions)
            if found is not None and len(indices):
                sums += found
            if time.monotonic() - told > TOLD:
                alive()
                told = time.monotonic()
        learner.rest()
        learner.train(mode=True)
        dist.all_reduce(sums, group=spread.meshes.loss.get_group())
        loss, right, targets = sums.tolist()
        return Measured(loss / targets, right / targets)


def _in_pieces(states: States, labels: Tensor) -> Tensor:
    """Sums of a batch, a few positions at a time."""
    labels = labels.flatten()
    return torch.stack([_sums(states.logits(piece), labels[piece]) for piece in states.pieces()]).sum(0)


def _sums(logits: Tensor, labels: Tensor) -> Tensor:
    """Loss, right answers and targets of a batch."""
    counted = labels != IGNORED
    right = (logits.argmax(-1) == labels) & counted
    return torch.stack([cross_entropy(logits, labels).double(), right.sum().double(), counted.sum().double()])
