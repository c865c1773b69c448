"""The exponential moving average (EMA) of a model's weights (Polyak & Juditsky 1992), often better than the last.

It is in the optimiser's state, so that it is sharded, checkpointed and loaded like the moments.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from understudy.train.optimizers import by_mesh

NAME = "average"
"""Its key in the optimiser's state of a parameter."""


class Averages:
    """The EMA of the weights that an optimiser trains.

    Args:
        optimizer: the optimiser, with its initial state.
        decay: the decay after many steps; it is smaller at first.
    """

    def __init__(self, optimizer: Optimizer, decay: float) -> None:
        self._decay = decay
        self._optimizer = optimizer
        for parameter in self._parameters():
            optimizer.state[parameter][NAME] = parameter.detach().clone()

    def update(self, step: int) -> None:
        """Update the EMA after a step, counted from 0; the first ones count more, as in TensorFlow."""
        share = 1 - min(self._decay, (1 + step) / (10 + step))
        for parameters in by_mesh(list(self._parameters())):
            averages = [self._average(parameter) for parameter in parameters]
            torch._foreach_lerp_(averages, [parameter.detach() for parameter in parameters], share)

    def swap(self) -> None:
        """Swap the averages and the model's weights; a second call swaps them back."""
        with torch.no_grad():
            for parameter in self._parameters():
                average, weight = self._average(parameter), parameter.detach().clone()
                parameter.copy_(average)
                average.copy_(weight)

    def _parameters(self) -> Iterator[nn.Parameter]:
        for group in self._optimizer.param_groups:
            yield from group["params"]

    def _average(self, parameter: nn.Parameter) -> Tensor:
        average: Tensor = self._optimizer.state[parameter][NAME]
        return average
