"""The teachers that an objective on logits learns from: the weighted mean of their distributions.

The weights of a position may depend on the teachers' logits and on the label. They are computed without gradients, as
the teachers' logits are.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from understudy.objectives.batch import Batch
from understudy.recipe.objectives import EnsembleObjective


@dataclass(frozen=True)
class Ensemble:
    """Some teachers of a training, and their weights."""

    indices: tuple[int, ...]
    """Of the teachers among those of the training."""
    weights: Literal["equal", "confidence", "label"] | tuple[float, ...] = "equal"
    """By their rule, or of each teacher; these are positive and sum to 1."""

    @classmethod
    def of(cls, section: EnsembleObjective, teachers: tuple[str, ...]) -> "Ensemble":
        """The teachers that an objective names among those of its training.

        A teacher of weight 0 is left out: 0 times a value that is not finite is NaN.
        """
        weights = section.teacher_weights
        if isinstance(weights, str):
            return cls(section.chosen(teachers), weights)
        total = math.fsum(weights.values())
        shares = {teachers.index(name): weights[name] / total for name in section.names(teachers)}
        positive = {index: share for index, share in shares.items() if share}
        return cls(tuple(positive), tuple(positive.values()))

    def chosen(self, teachers: tuple[Tensor, ...]) -> list[Tensor]:
        """Its teachers' logits among those of all teachers."""
        return [teachers[index] for index in self.indices]

    def log_likelihoods(self, teachers: tuple[Tensor, ...], batch: Batch, temperature: float) -> Tensor:
        """The logarithm (n, K) of the weighted mean of its teachers' distributions, each softened.

        Args:
            teachers: logits (n, K) of all teachers of the training; minus infinity for a probability of 0.
            batch: the n positions.
            temperature: by which logits are divided.
        """
        logits = self.chosen(teachers)
        softened = [functional.log_softmax(values / temperature, dim=-1) for values in logits]
        if len(softened) == 1:
            return softened[0]
        if self.weights == "equal":
            return torch.logsumexp(torch.stack(softened), dim=0) - math.log(len(softened))
        if self.weights == "confidence":
            weights = list(confidence_weights(torch.stack(softened)).log()[..., None])
        elif self.weights == "label":
            weights = list(label_weights(torch.stack(logits), batch).log()[..., None])
        else:
            weights = [math.log(weight) for weight in self.weights]
        weighted = [values + weight for values, weight in zip(softened, weights, strict=True)]
        return torch.logsumexp(torch.stack(weighted), dim=0)

    def mean(self, values: Tensor) -> Tensor:
        """The mean (n, K) of finite values (t, n, K) of its teachers, whose weights are equal or numbers."""
        if self.weights == "equal":
            return values.mean(0)
        assert isinstance(self.weights, tuple)
        return torch.stack([value * weight for value, weight in zip(values, self.weights, strict=True)]).sum(0)


def confidence_weights(softened: Tensor) -> Tensor:
    """Weights (t, n) of t teachers, from log-likelihoods (t, n, K): the softmax of their negative entropies, in nats.

    A teacher of low entropy gets a large weight, as Kwon et al. 2020 propose.
    """
    likelihoods = softened.exp()
    negative_entropies = (likelihoods * softened).masked_fill_(likelihoods == 0, 0).sum(-1)
    return negative_entropies.softmax(0)


def label_weights(logits: Tensor, batch: Batch) -> Tensor:
    """Weights (t, n) of t teachers, from their logits (t, n, K): large where the cross-entropy with the label is small.

    With the cross-entropies C, at a temperature of 1, a teacher's weight is (1 - exp(C_k) / sum of exp(C_j)) / (t - 1)
    (Zhang, Chen and Wang 2022, CA-MKD, equation 5). Labels are those of the batch, without smoothing.

    A teacher that gives the label a probability of 0 has an infinite cross-entropy. The weights are then the limit of
    equal small probabilities: other teachers have 1 / (t - 1) each, and all have 1 / t if none gives the label any. A
    position without a target has the weights of class 0.
    """
    assert batch.mixed is None
    targets = batch.labels.where(batch.has_target, 0)[:, None]
    losses = logits.logsumexp(-1) - logits.gather(2, targets.expand(len(logits), -1, -1))[..., 0]
    finite = losses.clamp(max=torch.finfo(losses.dtype).max)  # the softmax of several infinities would be NaN
    return (1 - finite.softmax(0)) / (len(logits) - 1)
