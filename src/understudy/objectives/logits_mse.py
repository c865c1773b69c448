"""The objective `logits_mse`: the squared difference of logits, or of their z-scores."""

import math
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import field_validator

from understudy.recipe.objectives import EnsembleObjective, Requirements, TeacherWeights

if TYPE_CHECKING:  # the recipe is checked without torch
    from torch import Tensor

    from understudy.objectives.batch import Batch
    from understudy.objectives.ensemble import Ensemble
    from understudy.objectives.objective import Context, PositionObjective

EPSILON = 1e-7
"""Added to standard deviations, as by Sun et al.: logits that are all equal have z-scores of 0."""


class LogitsMSEObjective(EnsembleObjective):
    """Squared difference of the logits, averaged over classes (Kim et al. 2021)."""

    requirements: ClassVar[Requirements] = Requirements(
        signals=frozenset({"logits"}),
        refuses_cache={
            "cached": "compares the logits of all classes, and most are not cached; remove the teacher's section "
            "logits, or take the objective logits"
        },
    )
    type: Literal["logits_mse"]
    standardize: bool = False
    """Compare z-scores of the logits (Sun et al. 2024): the student copies their order and relations, and neither their
    mean nor their scale."""

    @field_validator("teacher_weights")
    @classmethod
    def _of_teachers(cls, weights: TeacherWeights) -> TeacherWeights:
        if weights in ("confidence", "label"):
            raise ValueError(
                f"{weights} weighs distributions by their probabilities, and logits_mse averages logits; give each "
                "teacher a weight, or take the objective logits"
            )
        return weights

    def build(self, context: "Context") -> "PositionObjective":
        """Its formula."""
        from understudy.objectives.ensemble import Ensemble
        from understudy.objectives.objective import PositionObjective

        ensemble = Ensemble.of(self, tuple(context.teachers))
        return PositionObjective(partial(standardized_losses if self.standardize else losses, ensemble=ensemble))


def losses(
    student: "Tensor", teachers: "tuple[Tensor, ...]", batch: "Batch", *, ensemble: "Ensemble"
) -> "tuple[Tensor, Tensor]":
    """The mean over classes of (student - teacher)^2 (n,) by position, and its gradients (n, K).

    With several teachers, their logits are averaged. The loss changes if a constant is added to the logits of
    one model, which changes no probability. For centred logits it is twice the limit of `logits` as the temperature
    grows.

    A class with a teacher's logit of minus infinity is left out: no logit of the student is near it. The loss is
    infinite where only the student's is minus infinity.
    """
    target, compared = _targets(ensemble.chosen(teachers))
    differences = student.where(compared, 0) - ensemble.mean(target)
    count = compared.sum(-1, keepdim=True)
    loss = (differences.square() / count).sum(-1)
    gradient = 2 * differences / count
    return loss.where(batch.has_target, 0), gradient.masked_fill_(~batch.has_target[:, None], 0)


def standardized_losses(
    student: "Tensor", teachers: "tuple[Tensor, ...]", batch: "Batch", *, ensemble: "Ensemble"
) -> "tuple[Tensor, Tensor]":
    """The same of z-scores: (logit - mean) / standard deviation, both over the K classes of a position.

    With several teachers, their z-scores are averaged. Logits of any model may be shifted and multiplied by a
    positive number without changing the loss; a student's gradient is then divided by that number. For one teacher the
    loss is 2 - 2 * Pearson's correlation of the logits, from 0 to 4.
    """
    targets, compared = _targets(ensemble.chosen(teachers))
    count = compared.sum(-1, keepdim=True)
    target = ensemble.mean(_z_scores(targets, compared)[0])
    scores, deviation = _z_scores(student, compared)
    differences = scores - target
    loss = (differences.square() / count).sum(-1)
    derivatives = 2 * differences / count
    # The deviation's derivative is (logit - mean) / (K * deviation). The mean adds nothing: all z-scores have mean 0.
    along = (derivatives * scores).sum(-1, keepdim=True)
    slopes = scores * (1 + EPSILON / deviation).masked_fill_(deviation == 0, 0) / count
    gradient = (derivatives - along * slopes).div_(deviation + EPSILON).masked_fill_(~compared, 0)
    return loss.where(batch.has_target, 0), gradient.masked_fill_(~batch.has_target[:, None], 0)


def _targets(teachers: "list[Tensor]") -> "tuple[Tensor, Tensor]":
    """The teachers' logits (t, n, K), and whether a class (n, K) is compared; the others are 0."""
    import torch

    stacked = torch.stack(teachers)
    compared = (stacked != -math.inf).all(0)
    return stacked.where(compared, 0), compared


def _z_scores(logits: "Tensor", compared: "Tensor") -> "tuple[Tensor, Tensor]":
    """Z-scores (..., n, K) over the compared classes, 0 for others, and the standard deviations (..., n, 1)."""
    count = compared.sum(-1, keepdim=True)
    mean = logits.where(compared, 0).sum(-1, keepdim=True) / count
    centred = (logits - mean).where(compared, 0)
    deviation = (centred.square().sum(-1, keepdim=True) / count).sqrt()
    return centred / (deviation + EPSILON), deviation


OBJECTIVE = LogitsMSEObjective
