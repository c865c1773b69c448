"""The weights of objectives at a step of a training, for weights that follow a schedule.

A weight depends on the step's number alone, so that a training resumes with the same numbers.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from understudy.recipe.objectives import WeightSchedule


def weight_at(weight: float | WeightSchedule, step: int, steps: int) -> float:
    """A weight at a step, counted from 0, of a training of `steps` steps."""
    if not isinstance(weight, WeightSchedule):
        return weight
    progress = min(step / (weight.steps or steps), 1.0)
    if weight.form == "cosine":
        progress = (1 - math.cos(math.pi * progress)) / 2
    return (1 - progress) * weight.start + progress * weight.end


class StepWeights:
    """The weights at the current step. Before the first, they are those of step 0.

    Args:
        weights: of each objective.
    """

    def __init__(self, weights: Sequence[float | WeightSchedule]) -> None:
        self._weights, self._change = tuple(weights), any(isinstance(weight, WeightSchedule) for weight in weights)
        self.values = [weight_at(weight, 0, 1) for weight in weights]
        self.tensors = [torch.tensor(value, dtype=torch.double) for value in self.values]
        """The same as scalars, for compiled formulas: other values of a tensor do not compile them again."""

    def begin_step(self, step: int, steps: int, device: torch.device) -> None:
        """Set the weights of a step, counted from 0, of a training of `steps` steps on a device."""
        if not self._change:
            return
        self.values = [weight_at(weight, step, steps) for weight in self._weights]
        for at, value in enumerate(self.values):
            if self.tensors[at].device != device:
                self.tensors[at] = self.tensors[at].to(device)
            self.tensors[at].fill_(value)

    def weighted(self, at: int, values: Tensor) -> Tensor:
        """An objective's losses or gradients times its weight; 0 for a weight of 0, whatever they are."""
        weight = self.tensors[at]
        return (values * weight).masked_fill(weight == 0, 0)
