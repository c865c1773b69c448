"""Activation offload: what a block keeps for its backward pass waits in the CPU's memory, and comes back for it.

What a block keeps is then on the GPU for one block at a time, in exchange for two copies of it over the bus (Ren et al.
2021). Weights stay where they are: what fully_shard has gathered is given up and gathered again anyway.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from understudy.parallel.blocks import needed_blocks

CPU = torch.device("cpu")


def offload_activations(model: nn.Module, where: str) -> None:
    """Let a model's repeated blocks keep what they keep in the CPU's memory, in place.

    Args:
        model: before it is sharded, and after checkpoint_activations(): then a block's inputs alone are moved.
        where: the recipe's path of the training, for errors.

    Raises:
        InputError: the model has no repeated blocks.
    """
    for block in needed_blocks(model, f"{where}.offload", "take activations out"):
        block.forward = partial(_offloaded, block, block.forward)


def _offloaded(block: nn.Module, forward: Callable[..., Any], *given: Any, **named: Any) -> Any:
    if not torch.is_grad_enabled():
        return forward(*given, **named)
    weights = {parameter.untyped_storage().data_ptr() for parameter in block.parameters()}

    def pack(tensor: Tensor) -> tuple[Tensor, torch.device | None]:
        return (tensor, None) if tensor.untyped_storage().data_ptr() in weights else (_away(tensor), tensor.device)

    with torch.autograd.graph.saved_tensors_hooks(pack, _back):
        return forward(*given, **named)


def _away(tensor: Tensor) -> Tensor:
    # Pinned, so that the GPU goes on meanwhile; later copies of the same stream wait for this one.
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, device=CPU, pin_memory=tensor.is_cuda)
    return copy.copy_(tensor, non_blocking=True)


def _back(packed: tuple[Tensor, torch.device | None]) -> Tensor:
    tensor, device = packed
    return tensor if device is None else tensor.to(device, non_blocking=True)
