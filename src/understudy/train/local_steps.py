"""Replicas that train independently, and synchronise their weights at intervals: DiLoCo (Douillard et al. 2023).

Each replica takes some steps of an inner optimiser on its part of each batch, without communication. Then an outer
optimiser, SGD with Nesterov momentum, uses the mean change of their weights as gradient, and all continue from its
weights. The outer weights and momentum are the same everywhere, and part of the optimiser's state. A replica's own
state in between is per-rank state in checkpoints.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.stateful import Stateful
from torch.optim import Optimizer

from understudy.models.parts import local_tensor
from understudy.recipe import Diloco

OUTER, MOMENTUM = "outer", "outer_momentum"
"""Keys of the outer optimiser's state, by parameter."""


class LocalSteps(Stateful):
    """The outer optimiser over an inner one, and each replica's own state.

    Args:
        optimizer: the inner optimiser, with its initial state.
        settings: the recipe's settings.
        replicas: the ranks with the same part of the model in other replicas.
    """

    def __init__(self, optimizer: Optimizer, settings: Diloco, replicas: dist.ProcessGroup) -> None:
        self._optimizer, self._settings, self._replicas = optimizer, settings, replicas
        for parameter in self._parameters():
            dist.broadcast(local_tensor(parameter.detach()), group=replicas, group_src=0)
            optimizer.state[parameter][OUTER] = parameter.detach().clone()
            optimizer.state[parameter][MOMENTUM] = torch.zeros_like(parameter.detach())

    def after(self, step: int, steps: int) -> None:
        """Synchronise the replicas if due after a step, counted from 1, and after the last one."""
        if step % self._settings.every == 0 or step == steps:
            for parameter in self._parameters():
                state = self._optimizer.state[parameter]
                self._meet(*(local_tensor(tensor.detach()) for tensor in (parameter, state[OUTER], state[MOMENTUM])))

    def _meet(self, weight: Tensor, outer: Tensor, momentum: Tensor) -> None:
        """One tensor's outer step, in place; Nesterov's momentum as in torch.optim.SGD."""
        moved = outer - weight
        dist.all_reduce(moved, group=self._replicas)
        moved /= self._replicas.size()
        momentum.mul_(self._settings.momentum).add_(moved)
        outer.sub_(moved + self._settings.momentum * momentum, alpha=self._settings.learning_rate)
        weight.copy_(outer)

    def state_dict(self) -> dict[str, Any]:
        """This rank's weights and inner state, not copied."""
        state: dict[str, Tensor] = {}
        for number, parameter in enumerate(self._parameters()):
            state[f"{number}.weight"] = local_tensor(parameter.detach())
            for name, value in self._optimizer.state[parameter].items():
                if isinstance(value, Tensor) and name not in (OUTER, MOMENTUM):
                    state[f"{number}.{name}"] = local_tensor(value)
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore a state_dict() in place."""
        for name, tensor in self.state_dict().items():
            tensor.copy_(state_dict[name])

    def _parameters(self) -> Iterator[nn.Parameter]:
        for group in self._optimizer.param_groups:
            yield from group["params"]
