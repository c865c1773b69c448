"""The objective `total_variation`: half the summed difference of probabilities, from 0 to 1."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from understudy.recipe.objectives import NOT_SAMPLED, EnsembleObjective, Requirements

if TYPE_CHECKING:  # the recipe is checked without torch
    from torch import Tensor

    from understudy.objectives.batch import Batch
    from understudy.objectives.ensemble import Ensemble
    from understudy.objectives.objective import Context, PositionObjective


class TotalVariationObjective(EnsembleObjective):
    """Total variation distance (Wen et al. 2023, f-DISTILL), times the temperature, of softened distributions."""

    requirements: ClassVar[Requirements] = Requirements(
        signals=frozenset({"logits"}), refuses_cache={"sampled": NOT_SAMPLED}
    )
    type: Literal["total_variation"]
    temperature: Annotated[float, Field(gt=0)] = 2.0
    """Logits are divided by it. The factor temperature keeps gradients as large as those of the labels."""

    def build(self, context: "Context") -> "PositionObjective":
        """Its formula at the temperature."""
        from understudy.objectives.ensemble import Ensemble
        from understudy.objectives.objective import PositionObjective

        ensemble = Ensemble.of(self, tuple(context.teachers))
        return PositionObjective(partial(losses, temperature=self.temperature, ensemble=ensemble))


def losses(
    student: "Tensor",
    teachers: "tuple[Tensor, ...]",
    batch: "Batch",
    *,
    temperature: float,
    ensemble: "Ensemble",
) -> "tuple[Tensor, Tensor]":
    """T / 2 * sum of |student - teacher| at a temperature T (n,) by position, and its gradients (n, K).

    With several teachers, their distribution is the weighted mean of the softened ones.

    The derivative of a difference is its sign, whatever its size. The gradient with respect to the logits therefore
    shrinks as 1 / T, and not as the KL divergence's 1 / T^2, so the factor is T. As T grows, the loss approaches half
    the mean absolute difference of the centred logits. Equal probabilities have no gradient.

    It is at most T, for any logits, minus infinity included.
    """
    from torch.nn import functional

    from understudy.objectives.distributions import through_softmax

    log_student = functional.log_softmax(student / temperature, dim=-1)
    log_teacher = ensemble.log_likelihoods(teachers, batch, temperature)
    differences = log_student.exp() - log_teacher.exp()
    loss = temperature / 2 * differences.abs().sum(-1)
    gradient = through_softmax(log_student, differences.sign()).mul_(0.5)
    return loss.where(batch.has_target, 0), gradient.masked_fill_(~batch.has_target[:, None], 0)


OBJECTIVE = TotalVariationObjective
