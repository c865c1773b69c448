"""Objectives: from what student and teacher say about a batch to a loss, summed over the targets.

Summed, so that the losses of ranks and micro-batches add up; the loop divides by the number of targets. Each objective
has a module of its own, named in recipe/objectives.py: a change to one repeats the trainings that use it alone.
"""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor, nn

from understudy.models.outputs import Extra, Outputs
from understudy.recipe import ObjectiveSection, Train
from understudy.recipe.objectives import OBJECTIVES


class Mixed(NamedTuple):
    """Second labels, of examples that are a mixture of two (mixup)."""

    labels: Tensor
    share: float
    """Of the first labels."""


class Batch(NamedTuple):
    """What a rank reads at a time."""

    inputs: Tensor
    labels: Tensor
    """Positions with IGNORED have no target."""
    mixed: Mixed | None = None


class Objective(nn.Module, ABC):
    """One term of the loss.

    Its parameters (a projection between hidden states of two widths, say) are trained, checkpointed and sharded with
    the student's, and left out of the result.
    """

    extras: frozenset[Extra] = frozenset()
    """What it needs of both models besides their logits."""
    by_position: bool = False
    """Whether it is a sum over positions, each from its own logits alone: it is then asked for some at a time, (n, K),
    where those of all would be large."""

    @abstractmethod
    def forward(self, student: Outputs, teacher: Outputs | None, batch: Batch) -> Tensor:
        """The loss in nats, summed over the batch's targets: a scalar.

        Args:
            student: what the student says, with gradients.
            teacher: what the teacher says, without; None where a model is trained without one.
            batch: what both were shown.
        """


class WeightedSum(Objective):
    """Several objectives, each with its weight."""

    def __init__(self, parts: Sequence[tuple[float, Objective]]) -> None:
        super().__init__()
        self._weights = [weight for weight, _ in parts]
        self.parts = nn.ModuleList(objective for _, objective in parts)
        self.extras = frozenset().union(*(objective.extras for _, objective in parts))
        self.by_position = all(objective.by_position for _, objective in parts)

    def forward(self, student: Outputs, teacher: Outputs | None, batch: Batch) -> Tensor:
        """The weighted sum of the parts' sums over targets, in the recipe's order."""
        losses = [
            weight * part(student, teacher, batch) for weight, part in zip(self._weights, self.parts, strict=True)
        ]
        total: Tensor = sum(losses[1:], start=losses[0])
        return total


def objective(sections: Sequence[ObjectiveSection], train: Train) -> Objective:
    """What a recipe's student.distill says, in a training with these settings."""
    return WeightedSum([(section.weight, _objective(section, train)) for section in sections])


def _objective(section: ObjectiveSection, train: Train) -> Objective:
    made: Objective = importlib.import_module(OBJECTIVES[section.type]).objective(section, train)
    return made
