"""The objective `logits`: the teacher's softened distribution (Hinton et al. 2015)."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from understudy.recipe.objectives import EnsembleObjective, Requirements

if TYPE_CHECKING:  # the recipe is checked without torch
    from torch import Tensor

    from understudy.objectives.batch import Batch
    from understudy.objectives.ensemble import Ensemble
    from understudy.objectives.objective import Context, PositionObjective


class LogitsObjective(EnsembleObjective):
    """KL divergence from the teacher (Hinton et al. 2015): temperature^2 * KL(teacher || student), both softened."""

    requirements: ClassVar[Requirements] = Requirements(signals=frozenset({"logits"}))
    type: Literal["logits"]
    temperature: Annotated[float, Field(gt=0)] = 2.0
    """Logits are divided by it. The factor temperature^2 keeps gradients as large as those of the labels."""

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
    """T^2 * KL(teacher || student) at a temperature T (n,) by position, and its gradients (n, K).

    With several teachers, their distribution is the weighted mean of the softened ones (section 5).

    The gradient of the KL term with respect to the logits shrinks as 1 / T^2. The factor T^2 compensates, so that the
    weight between soft and hard targets means the same at every temperature (section 2). The gradient is then T times
    the difference of the softened distributions.

    A class with a teacher's probability of 0 (a logit of minus infinity) adds 0, the limit of p log p. The loss is
    infinite where only the student's probability is 0.
    """
    from torch.nn import functional

    log_student = functional.log_softmax(student / temperature, dim=-1)
    log_teacher = ensemble.log_likelihoods(teachers, batch, temperature)
    likelihoods = log_teacher.exp()
    terms = (likelihoods * (log_teacher - log_student)).masked_fill_(likelihoods == 0, 0)
    loss = temperature**2 * terms.sum(-1)
    gradient = (log_student.exp() - likelihoods).mul_(temperature)
    return loss.where(batch.has_target, 0), gradient.masked_fill_(~batch.has_target[:, None], 0)


OBJECTIVE = LogitsObjective
