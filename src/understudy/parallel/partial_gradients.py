"""Whole weights that each process of tp uses for a part, some positions or its own heads: their gradients are sums."""

from typing import Any

import torch.distributed as dist
from torch import nn


def sum_gradients(module: nn.Module, group: dist.ProcessGroup) -> None:
    """Let a module get its parameters' gradients from all ranks of a group, each of which it sees a part of.

    They are summed where a weight is used, and so once for each micro-batch.
    """
    from transformers.distributed.parallel_utils import _AllReduceBackward

    plain = module.forward

    def forward(*given: Any, **named: Any) -> Any:
        held = dict(module._parameters)
        module._parameters.update(
            {name: _AllReduceBackward.apply(weight, group) for name, weight in held.items() if weight is not None}
        )
        try:
            return plain(*given, **named)
        finally:
            module._parameters.update(held)

    module.forward = forward
