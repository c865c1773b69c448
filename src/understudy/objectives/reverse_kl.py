"""The objective `reverse_kl`: the student's divergence from its teacher, which favours the teacher's main modes."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from understudy.recipe.objectives import NOT_SAMPLED, EnsembleObjective, Requirements

if TYPE_CHECKING:  # the recipe is checked without torch
    from torch import Tensor

    from understudy.objectives.batch import Batch
    from understudy.objectives.ensemble import Ensemble
    from understudy.objectives.objective import Context, PositionObjective


class ReverseKLObjective(EnsembleObjective):
    """KL divergence from the student (Gu et al. 2024, MiniLLM): temperature^2 * KL(student || teacher), both softened.

    The expectation over classes is computed exactly at each position of the data; nothing is sampled from the student.
    """

    requirements: ClassVar[Requirements] = Requirements(
        signals=frozenset({"logits"}), refuses_cache={"sampled": NOT_SAMPLED}
    )
    type: Literal["reverse_kl"]
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
    """T^2 * KL(student || teacher) at a temperature T (n,) by position, and its gradients (n, K).

    With several teachers, their distribution is the weighted mean of the softened ones. As T grows, it approaches half
    the mean squared difference of the centred logits, as KL(teacher || student) does.

    A class with a student's probability of 0 (a logit of minus infinity) adds 0. The loss is infinite, and the gradient
    not finite, where only the teacher's probability is 0: no finite logit of the student is small enough. A training
    reports this as an error; `jsd` and `skewed_kl` stay finite.
    """
    from torch.nn import functional

    from understudy.objectives.distributions import kl, through_softmax

    log_student = functional.log_softmax(student / temperature, dim=-1)
    log_teacher = ensemble.log_likelihoods(teachers, batch, temperature)
    loss = temperature**2 * kl(log_student, log_teacher)
    gradient = through_softmax(log_student, log_student - log_teacher).mul_(temperature)
    return loss.where(batch.has_target, 0), gradient.masked_fill_(~batch.has_target[:, None], 0)


OBJECTIVE = ReverseKLObjective
