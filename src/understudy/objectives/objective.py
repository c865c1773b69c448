"""Objectives: losses computed from a student's and a teacher's outputs on a batch, summed over the targets.

Sums add up over ranks and micro-batches; the training loop divides by the number of targets. Each objective has its
own module, named in recipe/objectives.py, so that a change to one repeats only the trainings that use it.
"""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Sequence

from torch import Tensor, nn

from understudy.models.outputs import Extra, Outputs
from understudy.objectives.batch import Batch
from understudy.objectives.fused import TotalLoss
from understudy.recipe import ObjectiveSection, Train
from understudy.recipe.objectives import OBJECTIVES


class Objective(nn.Module, ABC):
    """One term of the loss.

    Its parameters (a projection between hidden states of two widths, say) are trained, checkpointed and sharded with
    the student's, and left out of the result.
    """

    extras: frozenset[Extra] = frozenset()
    """Outputs of both models that it needs besides the logits."""
    by_position: bool = False
    """Whether it is a sum over positions, each of which depends on its logits alone. It is then computed for some
    positions at a time, with logits (n, K), where the logits of all would be large."""

    @abstractmethod
    def forward(self, student: Outputs, teacher: Outputs | None, batch: Batch) -> Tensor:
        """The loss in nats, summed over the batch's targets: a scalar.

        Args:
            student: the student's outputs, with gradients.
            teacher: the teacher's outputs, without gradients; None in a training without a teacher.
            batch: the batch that both were computed on.
        """


class PositionObjective(Objective):
    """A sum over positions whose gradient with respect to the student's logits is computed in closed form.

    It bypasses autograd: loss and gradient take one pass over the logits. It has no parameters.
    """

    by_position = True

    @abstractmethod
    def losses(self, student: Tensor, teacher: Tensor | None, batch: Batch) -> tuple[Tensor, Tensor]:
        """The loss of each position (n,), and its gradient (n, K); both 0 at positions without a target.

        It is compiled with torch.compile, so no branch may depend on a tensor's values.

        Args:
            student: logits (n, K), fp32 or fp64; not to be changed in place.
            teacher: the teacher's logits, likewise; None without a teacher.
            batch: the n positions.
        """

    def forward(self, student: Outputs, teacher: Outputs | None, batch: Batch) -> Tensor:
        """The loss, summed over targets."""
        taught = None if teacher is None else teacher.logits.detach().flatten(0, -2)
        total: Tensor = TotalLoss.apply(self.losses, student.logits.flatten(0, -2), taught, batch.by_position())
        return total


class PositionSum(PositionObjective):
    """A weighted sum of objectives with gradients in closed form."""

    def __init__(self, parts: Sequence[tuple[float, PositionObjective]]) -> None:
        super().__init__()
        # Objectives of weight 0 are left out: 0 times an infinite loss is NaN.
        self._parts = [(weight, part) for weight, part in parts if weight] or list(parts[:1])

    def losses(self, student: Tensor, teacher: Tensor | None, batch: Batch) -> tuple[Tensor, Tensor]:
        """The weighted sums of the parts' losses and gradients."""
        (weight, part), *others = self._parts
        loss, gradient = part.losses(student, teacher, batch)
        if weight != 1:
            loss, gradient = loss * weight, gradient.mul_(weight)
        for weight, part in others:
            further, of_logits = part.losses(student, teacher, batch)
            loss, gradient = loss.add(further, alpha=weight), gradient.add_(of_logits, alpha=weight)
        return loss, gradient


class WeightedSum(Objective):
    """A weighted sum of objectives."""

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
    """The objective that a recipe's student.distill and training settings configure."""
    return weighted([(section.weight, _objective(section, train)) for section in sections])


def weighted(parts: Sequence[tuple[float, Objective]]) -> Objective:
    """The weighted sum of objectives, with a gradient in closed form if all parts have one."""
    closed = [(weight, part) for weight, part in parts if isinstance(part, PositionObjective)]
    return PositionSum(closed) if len(closed) == len(parts) else WeightedSum(parts)


def _objective(section: ObjectiveSection, train: Train) -> Objective:
    made: Objective = importlib.import_module(OBJECTIVES[section.type]).objective(section, train)
    return made
