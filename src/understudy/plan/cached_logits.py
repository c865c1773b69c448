"""A placeholder for a teacher whose logits are cached: it has no weights, and computes no layer."""

from dataclasses import dataclass

import torch
from torch import Tensor

from understudy.models.outputs import Outputs, States
from understudy.objectives.batch import Batch

ENTRIES = 101
"""Numbers of a position: 50 classes, with a probability each, and the rest's."""


@dataclass(frozen=True)
class BlankLogits:
    """Logits of zeros, as a Teacher."""

    vocabulary: int

    def outputs(self, batch: Batch) -> Outputs:
        """Logits of the labels' shape and one more."""
        return Outputs(torch.zeros((*batch.labels.shape, self.vocabulary), device=batch.labels.device))

    def states(self, batch: Batch) -> States:
        """Entries, of which logits are made for some positions at a time."""
        entries = torch.zeros((*batch.labels.shape, ENTRIES), device=batch.labels.device)
        return States(entries, self._logits, (), self.vocabulary)

    def reshard(self) -> None:
        """Nothing is sharded."""

    def _logits(self, entries: Tensor) -> Tensor:
        return torch.zeros((len(entries), self.vocabulary), device=entries.device)
