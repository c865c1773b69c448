"""Unsplit weights that each tp process applies to some positions or heads only: their gradients must be summed."""

from typing import Any

import torch.distributed as dist
from torch import nn


def sum_gradients(module: nn.Module, group: dist.ProcessGroup) -> None:
    """All-reduce the gradients of a module's parameters over a group whose ranks compute a part of them each.

    They are summed where a weight is used, and so once for each micro-batch.
    """
    from transformers.distributed.parallel_utils import _AllReduceBackward

    original_forward = module.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        original = dict(module._parameters)
        module._parameters.update(
            {name: _AllReduceBackward.apply(weight, group) for name, weight in original.items() if weight is not None}
        )
        try:
            return original_forward(*args, **kwargs)
        finally:
            module._parameters.update(original)

    module.forward = forward
