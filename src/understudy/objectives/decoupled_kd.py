"""The objective `decoupled_kd`: the teacher's confidence in the label, and its view of the other classes, apart."""

import math
from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from understudy.recipe.objectives import NOT_SAMPLED, EnsembleObjective, Requirements, Weight

if TYPE_CHECKING:  # the recipe is checked without torch
    from torch import Tensor

    from understudy.objectives.batch import Batch
    from understudy.objectives.ensemble import Ensemble
    from understudy.objectives.objective import Context, PositionObjective


class DecoupledKDObjective(EnsembleObjective):
    """Decoupled knowledge distillation (Zhao et al. 2022), times temperature^2, of softened distributions.

    It is target_weight * KL over the target and the rest + non_target_weight * KL over the other classes alone. The
    defaults are those of the paper for CIFAR-100.
    """

    requirements: ClassVar[Requirements] = Requirements(
        signals=frozenset({"logits"}),
        refuses_cache={"sampled": NOT_SAMPLED},
        refuses={
            "mixup": "decoupled_kd splits the classes into the label and the others, and a mixed image has two labels; "
            "leave augment.mixup out, or take logits"
        },
    )
    type: Literal["decoupled_kd"]
    target_weight: Weight = 1.0
    """The paper's alpha."""
    non_target_weight: Weight = 8.0
    """The paper's beta. In the KL divergence it is the teacher's probability of not being the label, which is small
    where the teacher is certain."""
    temperature: Annotated[float, Field(gt=0)] = 4.0
    """Logits are divided by it. The factor temperature^2 keeps gradients from shrinking as it grows."""

    @model_validator(mode="after")
    def _teaches(self) -> Self:
        if not self.target_weight + self.non_target_weight:
            raise ValueError("target_weight and non_target_weight are both 0; give one a weight above 0")
        return self

    def build(self, context: "Context") -> "PositionObjective":
        """Its formula at the weights and the temperature."""
        from understudy.objectives.ensemble import Ensemble
        from understudy.objectives.objective import PositionObjective

        weights, ensemble = (self.target_weight, self.non_target_weight), Ensemble.of(self, tuple(context.teachers))
        return PositionObjective(partial(losses, weights=weights, temperature=self.temperature, ensemble=ensemble))


def losses(
    student: "Tensor",
    teachers: "tuple[Tensor, ...]",
    batch: "Batch",
    *,
    weights: tuple[float, float],
    temperature: float,
    ensemble: "Ensemble",
) -> "tuple[Tensor, Tensor]":
    """T^2 * (target weight * TCKD + non-target weight * NCKD) (n,) by position, and its gradients (n, K).

    TCKD is the KL divergence of (p, 1 - p), where p is the probability of the label, and NCKD that of the
    distributions over the other classes, which sum to 1. The labels are those of the batch, without smoothing. With
    several teachers, their distribution is the weighted mean of the softened ones.

    A class with a teacher's probability of 0 adds 0. NCKD is 0 where the teacher gives all other classes 0. The loss is
    infinite where only the student's probability is 0.
    """
    import torch
    from torch.nn import functional

    from understudy.objectives.distributions import kl

    assert batch.mixed is None
    targets = batch.labels.where(batch.has_target, 0)[:, None]
    is_target = torch.arange(student.shape[1], device=student.device) == targets
    log_student = functional.log_softmax(student / temperature, dim=-1)
    log_teacher = ensemble.log_likelihoods(teachers, batch, temperature)
    student_binary, student_others = _decoupled(log_student, targets, is_target)
    teacher_binary, teacher_others = _decoupled(log_teacher, targets, is_target)
    target_weight, non_target_weight = weights
    loss = target_weight * kl(teacher_binary, student_binary)
    loss = temperature**2 * (loss + non_target_weight * kl(teacher_others, student_others))
    others = student_others.exp()
    excess = student_binary[:, :1].exp() - teacher_binary[:, :1].exp()
    has_others = teacher_binary[:, 1:] != -math.inf
    gradient = target_weight * excess * (is_target.to(others.dtype) - others)
    gradient += non_target_weight * (others - teacher_others.exp()).where(has_others, 0)
    gradient.mul_(temperature)
    return loss.where(batch.has_target, 0), gradient.masked_fill_(~batch.has_target[:, None], 0)


def _decoupled(log_likelihoods: "Tensor", targets: "Tensor", is_target: "Tensor") -> "tuple[Tensor, Tensor]":
    """Log-probabilities (n, 2) of the target and of the rest, and (n, K) of the classes among the rest.

    The target's is minus infinity among the rest, and so are all classes of a rest with the probability 0.
    """
    import torch

    others = log_likelihoods.masked_fill(is_target, -math.inf)
    rest = others.logsumexp(-1, keepdim=True)
    binary = torch.cat([log_likelihoods.gather(1, targets), rest], dim=1)
    return binary, others - rest.masked_fill(rest == -math.inf, 0)


OBJECTIVE = DecoupledKDObjective
