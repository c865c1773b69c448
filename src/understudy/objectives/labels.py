"""The objective `labels`: cross-entropy."""

from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal

from understudy.recipe.objectives import ObjectiveSection, Requirements

if TYPE_CHECKING:  # the recipe is checked without torch
    from torch import Tensor

    from understudy.objectives.batch import Batch
    from understudy.objectives.objective import Context, PositionObjective


class LabelsObjective(ObjectiveSection):
    """Cross-entropy with the labels, which train.label_smoothing may smooth (Szegedy et al. 2016)."""

    requirements: ClassVar[Requirements] = Requirements()
    type: Literal["labels"]

    def build(self, context: "Context") -> "PositionObjective":
        """Its formula, with the training's smoothing."""
        from understudy.objectives.objective import PositionObjective

        return PositionObjective(partial(losses, smoothing=context.train.label_smoothing))


def losses(
    student: "Tensor", teachers: "tuple[Tensor, ...]", batch: "Batch", *, smoothing: float
) -> "tuple[Tensor, Tensor]":
    """Negative log-likelihoods (n,) by position, and their gradients (n, K).

    The gradient with respect to the logits is the predicted distribution less the target's. The loss of a mixed example
    is the weighted sum of both labels' losses, which equals the loss of the mixed label (Zhang et al. 2018).
    """
    del teachers
    if batch.mixed is None:
        return cross_entropies(student, batch.labels, smoothing)
    first, first_gradient = cross_entropies(student, batch.labels, smoothing)
    second, second_gradient = cross_entropies(student, batch.mixed.labels, smoothing)
    return first.lerp(second, 1 - batch.mixed.share), first_gradient.lerp(second_gradient, 1 - batch.mixed.share)


def cross_entropies(logits: "Tensor", labels: "Tensor", smoothing: float) -> "tuple[Tensor, Tensor]":
    """Negative log-likelihood (n,) of each label, and its gradient (n, K); both 0 at positions without a target.

    Args:
        logits: (n, K).
        labels: (n,).
        smoothing: the share of a target's probability that is spread evenly over all K classes.
    """
    import torch
    from torch.nn import functional

    from understudy.data.loader import IGNORED

    counted = labels != IGNORED
    targets = labels.where(counted, 0)[:, None]
    log_likelihoods = functional.log_softmax(logits, dim=-1)
    loss = -log_likelihoods.gather(1, targets)[:, 0]
    gradient = log_likelihoods.exp()
    if smoothing:
        loss = loss.lerp(-log_likelihoods.mean(-1), smoothing)
        gradient -= smoothing / logits.shape[1]
    if torch.compiler.is_compiling():  # a comparison of columns is fused into the kernel, a scatter is not
        columns = torch.arange(logits.shape[1], device=logits.device)
        gradient = gradient - (1 - smoothing) * (columns == targets)
    else:
        gradient.scatter_add_(1, targets, torch.full_like(loss, smoothing - 1)[:, None])
    return loss.where(counted, 0), gradient.masked_fill_(~counted[:, None], 0)


def cross_entropy(logits: "Tensor", labels: "Tensor") -> "Tensor":
    """Negative log-likelihood of the labels, summed over the targets, without gradients.

    Args:
        logits: (..., K).
        labels: (...); positions without a target are ignored.
    """
    from torch.nn import functional

    from understudy.data.loader import IGNORED

    return functional.cross_entropy(
        logits.float().flatten(0, -2), labels.flatten(), ignore_index=IGNORED, reduction="sum"
    )


OBJECTIVE = LabelsObjective
