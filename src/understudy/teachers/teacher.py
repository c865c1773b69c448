"""The teacher of a training: the signal that it gives for a batch.

Objectives do not depend on where the signal comes from. A teacher in memory computes it from the batch's inputs; others
may look it up by the examples' indices.
"""

from typing import Protocol

from understudy.models.outputs import Outputs, States
from understudy.objectives.batch import Batch


class Teacher(Protocol):
    """The interface of a teacher, the same on all ranks."""

    def outputs(self, batch: Batch) -> Outputs:
        """Logits and extras, without gradients, as tensors that may be used in a loss with gradients."""

    def states(self, batch: Batch) -> States:
        """The last layer and its inputs, without gradients, for logits of some positions at a time."""

    def reshard(self) -> None:
        """Free all-gathered parameters."""
