"""Objectives: from what student and teacher say about a batch to a loss, summed over the targets.

Summed, so that the losses of ranks and micro-batches add up; the loop divides by the number of targets.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor, nn
from torch.nn import functional

from understudy.data.loader import IGNORED
from understudy.models.outputs import Extra, Outputs
from understudy.recipe import LabelsObjective, LogitsObjective, ObjectiveSection


class Batch(NamedTuple):
    """What a rank reads at a time."""

    inputs: Tensor
    labels: Tensor
    """Positions with IGNORED have no target."""


class Objective(nn.Module, ABC):
    """One term of the loss.

    Its parameters (a projection between hidden states of two widths, say) are trained, checkpointed and sharded with
    the student's, and left out of the result.
    """

    extras: frozenset[Extra] = frozenset()
    """What it needs of both models besides their logits."""

    @abstractmethod
    def forward(self, student: Outputs, teacher: Outputs | None, batch: Batch) -> Tensor:
        """The loss in nats, summed over the batch's targets: a scalar.

        Args:
            student: what the student says, with gradients.
            teacher: what the teacher says, without; None where a model is trained without one.
            batch: what both were shown.
        """


class Labels(Objective):
    """Negative log-likelihood of the labels."""

    def forward(self, student: Outputs, teacher: Outputs | None, batch: Batch) -> Tensor:
        """The sum over targets."""
        del teacher
        return cross_entropy(student.logits, batch.labels)


class Logits(Objective):
    """T^2 * KL(teacher || student) at a temperature T (Hinton et al. 2015)."""

    def __init__(self, temperature: float) -> None:
        super().__init__()
        self._temperature = temperature

    def forward(self, student: Outputs, teacher: Outputs | None, batch: Batch) -> Tensor:
        """The sum over targets."""
        assert teacher is not None
        return soft_cross_entropy(student.logits, teacher.logits, batch.labels, self._temperature)


class WeightedSum(Objective):
    """Several objectives, each with its weight."""

    def __init__(self, parts: Sequence[tuple[float, Objective]]) -> None:
        super().__init__()
        self._weights = [weight for weight, _ in parts]
        self.parts = nn.ModuleList(objective for _, objective in parts)
        self.extras = frozenset().union(*(objective.extras for _, objective in parts))

    def forward(self, student: Outputs, teacher: Outputs | None, batch: Batch) -> Tensor:
        """The weighted sum of the parts' sums over targets, in the recipe's order."""
        losses = [
            weight * part(student, teacher, batch) for weight, part in zip(self._weights, self.parts, strict=True)
        ]
        total: Tensor = sum(losses[1:], start=losses[0])
        return total


def objective(sections: Sequence[ObjectiveSection]) -> Objective:
    """What a recipe's student.distill says."""
    return WeightedSum([(section.weight, _objective(section)) for section in sections])


def _objective(section: ObjectiveSection) -> Objective:
    match section:
        case LabelsObjective():
            return Labels()
        case LogitsObjective():
            return Logits(section.temperature)


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Negative log-likelihood of the labels, summed over the targets.

    Args:
        logits: (..., K).
        labels: (...); positions without a target do not count.
    """
    return functional.cross_entropy(
        logits.float().flatten(0, -2), labels.flatten(), ignore_index=IGNORED, reduction="sum"
    )


def soft_cross_entropy(student: Tensor, teacher: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """T^2 * KL(teacher || student) of the distributions at a temperature, summed over the targets.

    The gradient of the KL term with respect to the logits shrinks as 1 / T^2; the factor undoes that, so that the
    weight between soft and hard part means the same at every temperature (Hinton et al. 2015, section 2).

    Args:
        student: logits (..., K).
        teacher: logits (..., K) of the same positions.
        labels: (...); positions without a target do not count.
        temperature: T > 0.
    """
    student, teacher = student.float().flatten(0, -2), teacher.float().flatten(0, -2)
    log_student = functional.log_softmax(student / temperature, dim=-1)
    log_teacher = functional.log_softmax(teacher / temperature, dim=-1)
    divergence = functional.kl_div(log_student, log_teacher, reduction="none", log_target=True).sum(-1)
    return temperature**2 * (divergence * (labels.flatten() != IGNORED)).sum()
