"""Validation during a training: the loss on examples that are not trained on, early stopping, and the best weights.

Losses are the same under every strategy and on every rank, so ranks decide by them without communication.
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
from understudy.models.outputs import States
from understudy.objectives.labels import cross_entropy
from understudy.parallel.apply import Spread
from understudy.train.learning import Learner
from understudy.train.validated import Curve, first_least, losses

TOLD = 5.0  # seconds


class Measured(NamedTuple):
    """A model's results on the validation split."""

    loss: float
    """Nats per target: cross-entropy of the labels, for any objective."""
    accuracy: float


@dataclass(frozen=True)
class Validation:
    """The settings of validation, and its examples."""

    examples: Examples
    batch_size: int
    """Over all readers."""
    every: int
    """In steps; the last step is always validated."""
    keep_best: bool
    """Whether the finished model has the weights of the smallest loss."""
    patience: int | None
    """Number of validations without a smaller loss after which a training ends early."""

    def is_due(self, step: int, steps: int) -> bool:
        """Whether to validate the model after so many steps."""
        return step % self.every == 0 or step == steps

    def is_over(self, curve: Curve) -> bool:
        """Whether a training ends early."""
        values = [loss for _, loss in losses(curve)]
        return self.patience is not None and bool(values) and len(values) - 1 - first_least(values) >= self.patience

    def measure(self, learner: Learner, spread: Spread, alive: Callable[[], None]) -> Measured:
        """Loss and accuracy on all examples, of a model in training. Collective: call it on every rank.

        Args:
            learner: the model.
            spread: the distribution over ranks.
            alive: called every few seconds: a large split takes longer than a step.
        """
        batch = spread.meshes.batch
        width = max(1, self.batch_size // batch.size())
        sums = torch.zeros(3, dtype=torch.double, device=spread.device)
        last_heartbeat = time.monotonic()
        learner.train(mode=False)
        for first in range(0, len(self.examples), width * batch.size()):
            start = first + batch.get_local_rank() * width
            indices = np.arange(start, min(start + width, len(self.examples)))
            # A rank with no examples left computes one all the same, uncounted: the others wait for it.
            local_indices = indices if len(indices) else np.zeros(1, dtype=np.int64)
            inputs, labels = (tensor.to(spread.device) for tensor in self.examples.batch(local_indices))
            positions = self.examples.positions(local_indices)
            if positions is not None:
                positions = positions.to(spread.device)
            result = learner.evaluate(inputs, labels, _in_pieces, positions)
            if result is not None and len(indices):
                sums += result
            if time.monotonic() - last_heartbeat > TOLD:
                alive()
                last_heartbeat = time.monotonic()
        learner.reshard()
        learner.train(mode=True)
        dist.all_reduce(sums, group=spread.meshes.loss.get_group())
        loss, right, targets = sums.tolist()
        return Measured(loss / targets, right / targets)


def _in_pieces(states: States, labels: Tensor) -> Tensor:
    """The sums of a batch, a few positions at a time."""
    labels = labels.flatten()
    return torch.stack([_sums(states.logits(piece), labels[piece]) for piece in states.pieces()]).sum(0)


def _sums(logits: Tensor, labels: Tensor) -> Tensor:
    """Loss, correct predictions and targets of a batch."""
    counted = labels != IGNORED
    right = (logits.argmax(-1) == labels) & counted
    return torch.stack([cross_entropy(logits, labels).double(), right.sum().double(), counted.sum().double()])
