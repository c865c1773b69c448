"""Objectives: from what student and teacher say about a batch to a loss, summed over the targets.

Summed, so that the losses of ranks and micro-batches add up; the loop divides by the number of targets. Each objective
has a module of its own, named in recipe/objectives.py: a change to one repeats the trainings that use it alone.
"""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Sequence

from torch import Tensor, nn

from understudy.distill.batch import Batch
from understudy.distill.fused import TotalLoss
from understudy.models.outputs import Extra, Outputs
from understudy.recipe import ObjectiveSection, Train
from understudy.recipe.objectives import OBJECTIVES


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


class PositionObjective(Objective):
    """A sum over positions that gives its gradient with respect to the student's logits in closed form.

    Nothing then goes through autograd, and loss and gradient take one pass over the logits. It has no parameters.
    """

    by_position = True

    @abstractmethod
    def losses(self, student: Tensor, teacher: Tensor | None, batch: Batch) -> tuple[Tensor, Tensor]:
        """The loss of each position (n,), and its gradient (n, K); both 0 at positions without a target.

        torch.compile makes a kernel of it: no branch may depend on a tensor's values.

        Args:
            student: logits (n, K), fp32 or fp64, which stay as they are.
            teacher: the same of the teacher, if there is one.
            batch: of these n positions.
        """

    def forward(self, student: Outputs, teacher: Outputs | None, batch: Batch) -> Tensor:
        """The sum over targets."""
        taught = None if teacher is None else teacher.logits.detach().flatten(0, -2)
        total: Tensor = TotalLoss.apply(self.losses, student.logits.flatten(0, -2), taught, batch.by_position())
        return total


class PositionSum(PositionObjective):
    """Several objectives with closed gradients, each with its weight."""

    def __init__(self, parts: Sequence[tuple[float, PositionObjective]]) -> None:
        super().__init__()
        # A weight of 0 leaves an objective out: 0 times an infinite loss would be no number.
        self._parts = [(weight, part) for weight, part in parts if weight] or list(parts[:1])

    def losses(self, student: Tensor, teacher: Tensor | None, batch: Batch) -> tuple[Tensor, Tensor]:
        """The weighted sums."""
        (weight, part), *others = self._parts
        loss, gradient = part.losses(student, teacher, batch)
        if weight != 1:
            loss, gradient = loss * weight, gradient.mul_(weight)
        for weight, part in others:
            further, of_logits = part.losses(student, teacher, batch)
            loss, gradient = loss.add(further, alpha=weight), gradient.add_(of_logits, alpha=weight)
        return loss, gradient


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
    return weighted([(section.weight, _objective(section, train)) for section in sections])


def weighted(parts: Sequence[tuple[float, Objective]]) -> Objective:
    """The weighted sum of objectives; its gradient is closed if all of theirs are."""
    closed = [(weight, part) for weight, part in parts if isinstance(part, PositionObjective)]
    return PositionSum(closed) if len(closed) == len(parts) else WeightedSum(parts)


def _objective(section: ObjectiveSection, train: Train) -> Objective:
    made: Objective = importlib.import_module(OBJECTIVES[section.type]).objective(section, train)
    return made
