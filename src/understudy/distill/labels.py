"""The objective `labels`: cross-entropy."""

from torch import Tensor
from torch.nn import functional

from understudy.data.loader import IGNORED
from understudy.distill.objectives import Batch, Objective
from understudy.models.outputs import Outputs
from understudy.recipe import LabelsObjective


class Labels(Objective):
    """Negative log-likelihood of the labels."""

    def forward(self, student: Outputs, teacher: Outputs | None, batch: Batch) -> Tensor:
        """The sum over targets."""
        del teacher
        return cross_entropy(student.logits, batch.labels)


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Negative log-likelihood of the labels, summed over the targets.

    Args:
        logits: (..., K).
        labels: (...); positions without a target do not count.
    """
    return functional.cross_entropy(
        logits.float().flatten(0, -2), labels.flatten(), ignore_index=IGNORED, reduction="sum"
    )


def objective(_section: LabelsObjective) -> Objective:
    """The objective of a section."""
    return Labels()
