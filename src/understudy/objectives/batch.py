"""The batch that objectives and teachers take: the examples that a rank reads at a time."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from torch import Tensor

from understudy.data.loader import IGNORED


class Mixed(NamedTuple):
    """Second labels of examples that are mixed from two (mixup)."""

    labels: Tensor
    share: float
    """Weight of the first labels."""


class Batch(NamedTuple):
    """Inputs and labels of examples, and their indices."""

    inputs: Tensor
    labels: Tensor
    """Positions with IGNORED have no target."""
    mixed: Mixed | None = None
    indices: Tensor | None = None
    """The examples' indices in the training split, int64 (B,) on the CPU: the same in every epoch."""
    placed: Mapping[str, Tensor] = MappingProxyType({})
    """A model's keyword arguments besides the inputs: `positions` and `mask`, where these are parts of sequences, or
    have several documents."""

    @property
    def has_target(self) -> Tensor:
        """Whether each position has a target: boolean, of the labels' shape."""
        return self.labels != IGNORED

    def by_position(self) -> "Batch":
        """Inputs and labels with all positions flattened into one dimension."""
        mixed = self.mixed and self.mixed._replace(labels=self.mixed.labels.flatten())
        return Batch(self.inputs.flatten(0, self.labels.ndim - 1), self.labels.flatten(), mixed)

    def part(self, rows: slice) -> "Batch":
        """A slice of the rows."""
        mixed = self.mixed and self.mixed._replace(labels=self.mixed.labels[rows])
        return Batch(self.inputs[rows], self.labels[rows], mixed)
