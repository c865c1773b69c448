"""Objectives: from logits and labels to a loss, summed over the targets so that ranks and micro-batches add up."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from understudy.data.loader import IGNORED

Objective = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(logits (..., K), inputs, labels (...)) -> the loss summed over targets, a scalar in nats."""


def cross_entropy(logits: Tensor, inputs: Tensor, labels: Tensor) -> Tensor:
    """Negative log-likelihood of the labels, summed over the targets."""
    del inputs
    return functional.cross_entropy(
        logits.float().flatten(0, -2), labels.flatten(), ignore_index=IGNORED, reduction="sum"
    )


def soft_cross_entropy(student: Tensor, teacher: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """T^2 * KL(teacher || student) of the distributions at a temperature, summed over the targets.

    The gradient of the KL term with respect to the logits shrinks as 1 / T^2; the factor undoes that, so that the
    weight between soft and hard part means the same at every temperature (Hinton et al. 2015, section 2).

    Args:
        student: logits (..., K).
        teacher: logits (..., K) of the same positions.
        labels: (...); positions without a target do not count.
        temperature: T > 0.
    """
    student, teacher = student.float().flatten(0, -2), teacher.float().flatten(0, -2)
    log_student = functional.log_softmax(student / temperature, dim=-1)
    log_teacher = functional.log_softmax(teacher / temperature, dim=-1)
    divergence = functional.kl_div(log_student, log_teacher, reduction="none", log_target=True).sum(-1)
    return temperature**2 * (divergence * (labels.flatten() != IGNORED)).sum()


class LogitDistillation:
    """(1 - alpha) * cross-entropy + alpha * T^2 * KL(teacher || student)  (Hinton et al. 2015).

    The teacher is frozen and runs in inference mode.
    """

    def __init__(self, teacher: nn.Module, temperature: float, alpha: float) -> None:
        self._teacher = teacher.requires_grad_(requires_grad=False).eval()
        self._temperature, self._alpha = temperature, alpha

    def __call__(self, logits: Tensor, inputs: Tensor, labels: Tensor) -> Tensor:
        """The loss, summed over the targets."""
        with torch.inference_mode():
            guidance = self._teacher(inputs)
        soft = soft_cross_entropy(logits, guidance.clone(), labels, self._temperature)
        return (1 - self._alpha) * cross_entropy(logits, inputs, labels) + self._alpha * soft
