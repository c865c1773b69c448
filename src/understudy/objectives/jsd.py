"""The objective `jsd`: the generalized Jensen-Shannon divergence, between the two directions of the KL divergence."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from understudy.recipe.objectives import NOT_SAMPLED, EnsembleObjective, Requirements

if TYPE_CHECKING:  # the recipe is checked without torch
    from torch import Tensor

    from understudy.objectives.batch import Batch
    from understudy.objectives.ensemble import Ensemble
    from understudy.objectives.objective import Context, PositionObjective


class JSDObjective(EnsembleObjective):
    """Generalized Jensen-Shannon divergence (Agarwal et al. 2024, GKD), times temperature^2, of softened distributions.

    With mixture = beta * teacher + (1 - beta) * student it is
    beta * KL(teacher || mixture) + (1 - beta) * KL(student || mixture).
    """

    requirements: ClassVar[Requirements] = Requirements(
        signals=frozenset({"logits"}), refuses_cache={"sampled": NOT_SAMPLED}
    )
    type: Literal["jsd"]
    beta: Annotated[float, Field(ge=0, le=1)] = 0.5
    """The teacher's share of the mixture. 0 is KL(teacher || student), as `logits`, and 1 is KL(student || teacher), as
    `reverse_kl`: the formula is 0 at both ends, and these are its limits after division by beta or 1 - beta (as in
    TRL)."""
    temperature: Annotated[float, Field(gt=0)] = 2.0
    """Logits are divided by it. The factor temperature^2 keeps gradients from shrinking as it grows."""

    def build(self, context: "Context") -> "PositionObjective":
        """Its formula at beta and the temperature."""
        from understudy.objectives import logits, reverse_kl
        from understudy.objectives.ensemble import Ensemble
        from understudy.objectives.objective import PositionObjective

        ensemble = Ensemble.of(self, tuple(context.teachers))
        if self.beta in (0, 1):
            limit = reverse_kl.losses if self.beta else logits.losses
            return PositionObjective(partial(limit, temperature=self.temperature, ensemble=ensemble))
        return PositionObjective(partial(losses, beta=self.beta, temperature=self.temperature, ensemble=ensemble))


def losses(
    student: "Tensor",
    teachers: "tuple[Tensor, ...]",
    batch: "Batch",
    *,
    beta: float,
    temperature: float,
    ensemble: "Ensemble",
) -> "tuple[Tensor, Tensor]":
    """T^2 * the divergence at a temperature T (n,) by position, and its gradients (n, K), for beta between 0 and 1.

    With several teachers, their distribution is the weighted mean of the softened ones. As T grows, it approaches
    beta * (1 - beta) times half the mean squared difference of the centred logits: the gradient for beta 0.5 is a
    quarter of that of `logits`.

    It is finite for any logits, minus infinity included: the mixture's probability is 0 only where both are.
    """
    from torch.nn import functional

    from understudy.objectives.distributions import kl, mixture, through_softmax

    log_student = functional.log_softmax(student / temperature, dim=-1)
    log_teacher = ensemble.log_likelihoods(teachers, batch, temperature)
    log_mixture = mixture(log_teacher, log_student, beta)
    divergence = beta * kl(log_teacher, log_mixture) + (1 - beta) * kl(log_student, log_mixture)
    gradient = through_softmax(log_student, log_student - log_mixture).mul_(temperature * (1 - beta))
    loss = temperature**2 * divergence
    return loss.where(batch.has_target, 0), gradient.masked_fill_(~batch.has_target[:, None], 0)


OBJECTIVE = JSDObjective
