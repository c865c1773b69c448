"""The objective `labels`: cross-entropy."""

from torch import Tensor
from torch.nn import functional

from understudy.data.loader import IGNORED
from understudy.distill.objectives import Batch, Objective
from understudy.models.outputs import Outputs
from understudy.recipe import LabelsObjective, Train


class Labels(Objective):
    """Negative log-likelihood of the labels, which may be smoothed (Szegedy et al. 2016).

    Of mixed examples that of both labels, by their shares, which is the same as that of the mixed label (Zhang et al.
    2018).
    """

    by_position = True

    def __init__(self, smoothing: float) -> None:
        super().__init__()
        self._smoothing = smoothing

    def forward(self, student: Outputs, teacher: Outputs | None, batch: Batch) -> Tensor:
        """The sum over targets."""
        del teacher
        loss = cross_entropy(student.logits, batch.labels, self._smoothing)
        if batch.mixed is None:
            return loss
        other = cross_entropy(student.logits, batch.mixed.labels, self._smoothing)
        return batch.mixed.share * loss + (1 - batch.mixed.share) * other


def cross_entropy(logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
    """Negative log-likelihood of the labels, summed over the targets.

    Args:
        logits: (..., K).
        labels: (...); positions without a target do not count.
        smoothing: the share of a target's probability that is spread evenly over all K.
    """
    return functional.cross_entropy(
        logits.float().flatten(0, -2),
        labels.flatten(),
        ignore_index=IGNORED,
        reduction="sum",
        label_smoothing=smoothing,
    )


def objective(_section: LabelsObjective, train: Train) -> Objective:
    """The objective of a section, in a training."""
    return Labels(train.label_smoothing)
