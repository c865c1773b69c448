"""The objective `skewed_kl`: KL divergence from a mixture with a share of the first distribution in it."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from understudy.recipe.objectives import NOT_SAMPLED, EnsembleObjective, Requirements

if TYPE_CHECKING:  # the recipe is checked without torch
    from torch import Tensor

    from understudy.objectives.batch import Batch
    from understudy.objectives.ensemble import Ensemble
    from understudy.objectives.objective import Context, PositionObjective


class SkewedKLObjective(EnsembleObjective):
    """Skew KL divergence (Ko et al. 2024, DistiLLM), times temperature^2, of softened distributions.

    It is KL(teacher || alpha * teacher + (1 - alpha) * student), and
    KL(student || alpha * student + (1 - alpha) * teacher) in reverse.
    """

    requirements: ClassVar[Requirements] = Requirements(
        signals=frozenset({"logits"}), refuses_cache={"sampled": NOT_SAMPLED}
    )
    type: Literal["skewed_kl"]
    alpha: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """The skew: the share of the first distribution in the mixture. Towards 0 it is the KL divergence."""
    reverse: bool = False
    """Whether the student's distribution is the first (SRKL), and not the teacher's (SKL)."""
    temperature: Annotated[float, Field(gt=0)] = 2.0
    """Logits are divided by it. The factor temperature^2 keeps gradients from shrinking as it grows."""

    def build(self, context: "Context") -> "PositionObjective":
        """Its formula at the skew and the temperature."""
        from understudy.objectives.ensemble import Ensemble
        from understudy.objectives.objective import PositionObjective

        ensemble, formula = Ensemble.of(self, tuple(context.teachers)), reverse_losses if self.reverse else losses
        return PositionObjective(partial(formula, alpha=self.alpha, temperature=self.temperature, ensemble=ensemble))


def losses(
    student: "Tensor",
    teachers: "tuple[Tensor, ...]",
    batch: "Batch",
    *,
    alpha: float,
    temperature: float,
    ensemble: "Ensemble",
) -> "tuple[Tensor, Tensor]":
    """T^2 * KL(teacher || mixture) at a temperature T (n,) by position, and its gradients (n, K).

    With several teachers, their distribution is the weighted mean of the softened ones. As T grows, it approaches
    (1 - alpha)^2 times half the mean squared difference of the centred logits.

    It is at most -T^2 * log(alpha), for any logits, minus infinity included.
    """
    from torch.nn import functional

    from understudy.objectives.distributions import kl, mixture, through_softmax

    log_student = functional.log_softmax(student / temperature, dim=-1)
    log_teacher = ensemble.log_likelihoods(teachers, batch, temperature)
    log_mixture = mixture(log_teacher, log_student, alpha)
    loss = temperature**2 * kl(log_teacher, log_mixture)
    ratios = (log_teacher - log_mixture).exp()
    gradient = through_softmax(log_student, ratios).mul_(temperature * (alpha - 1))
    return loss.where(batch.has_target, 0), gradient.masked_fill_(~batch.has_target[:, None], 0)


def reverse_losses(
    student: "Tensor",
    teachers: "tuple[Tensor, ...]",
    batch: "Batch",
    *,
    alpha: float,
    temperature: float,
    ensemble: "Ensemble",
) -> "tuple[Tensor, Tensor]":
    """T^2 * KL(student || mixture), as `losses` with student and teacher exchanged, and its gradients.

    The derivative with respect to a student's probability q is log(q / m) + 1 - alpha * q / m, where m is the
    mixture's.
    """
    from torch.nn import functional

    from understudy.objectives.distributions import kl, mixture, through_softmax

    log_student = functional.log_softmax(student / temperature, dim=-1)
    log_teacher = ensemble.log_likelihoods(teachers, batch, temperature)
    log_mixture = mixture(log_student, log_teacher, alpha)
    loss = temperature**2 * kl(log_student, log_mixture)
    log_ratios = log_student - log_mixture
    gradient = through_softmax(log_student, log_ratios - alpha * log_ratios.exp()).mul_(temperature)
    return loss.where(batch.has_target, 0), gradient.masked_fill_(~batch.has_target[:, None], 0)


OBJECTIVE = SkewedKLObjective
