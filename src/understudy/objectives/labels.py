"""The objective `labels`: cross-entropy."""

import torch
from torch import Tensor
from torch.nn import functional

from understudy.data.loader import IGNORED
from understudy.objectives.batch import Batch
from understudy.objectives.objective import Objective, PositionObjective
from understudy.recipe import LabelsObjective, Train


class Labels(PositionObjective):
    """Negative log-likelihood of the labels, which may be smoothed (Szegedy et al. 2016).

    The gradient with respect to the logits is the predicted distribution less the target's. The loss of a mixed example
    is the weighted sum of both labels' losses, which equals the loss of the mixed label (Zhang et al. 2018).
    """

    def __init__(self, smoothing: float) -> None:
        super().__init__()
        self._smoothing = smoothing

    def losses(self, student: Tensor, teacher: Tensor | None, batch: Batch) -> tuple[Tensor, Tensor]:
        """Losses (n,) by position, and their gradients (n, K)."""
        del teacher
        if batch.mixed is None:
            return cross_entropies(student, batch.labels, self._smoothing)
        first, to_first = cross_entropies(student, batch.labels, self._smoothing)
        second, to_second = cross_entropies(student, batch.mixed.labels, self._smoothing)
        return first.lerp(second, 1 - batch.mixed.share), to_first.lerp(to_second, 1 - batch.mixed.share)


def cross_entropies(logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Negative log-likelihood (n,) of each label, and its gradient (n, K); both 0 at positions without a target.

    Args:
        logits: (n, K).
        labels: (n,).
        smoothing: the share of a target's probability that is spread evenly over all K classes.
    """
    counted = labels != IGNORED
    places = labels.where(counted, 0)[:, None]
    log_likelihoods = functional.log_softmax(logits, dim=-1)
    loss = -log_likelihoods.gather(1, places)[:, 0]
    gradient = log_likelihoods.exp()
    if smoothing:
        loss = loss.lerp(-log_likelihoods.mean(-1), smoothing)
        gradient -= smoothing / logits.shape[1]
    if torch.compiler.is_compiling():  # a comparison of columns is fused into the kernel, a scatter is not
        columns = torch.arange(logits.shape[1], device=logits.device)
        gradient = gradient - (1 - smoothing) * (columns == places)
    else:
        gradient.scatter_add_(1, places, torch.full_like(loss, smoothing - 1)[:, None])
    return loss.where(counted, 0), gradient.masked_fill_(~counted[:, None], 0)


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Negative log-likelihood of the labels, summed over the targets, without gradients.

    Args:
        logits: (..., K).
        labels: (...); positions without a target are ignored.
    """
    return functional.cross_entropy(
        logits.float().flatten(0, -2), labels.flatten(), ignore_index=IGNORED, reduction="sum"
    )


def objective(_section: LabelsObjective, train: Train) -> Objective:
    """The objective that a recipe's section configures."""
    return Labels(train.label_smoothing)
