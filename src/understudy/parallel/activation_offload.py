"""Activation offload: a block's saved tensors are moved to CPU memory, and back for its backward pass.

The GPU then holds the saved tensors of one block at a time, at the price of two copies over the bus (Ren et al. 2021).
Weights are not moved: fully_shard frees all-gathered weights and gathers them again anyway.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from understudy.parallel.blocks import needed_blocks

CPU = torch.device("cpu")


def offload_activations(model: nn.Module, path: str) -> None:
    """Offload the saved tensors of a model's repeated blocks to CPU memory, in place.

    Args:
        model: not sharded yet, and after checkpoint_activations(): then only tensors that it saves are moved.
        path: the training's path in the recipe, for errors.

    Raises:
        InputError: the model has no repeated blocks.
    """
    for block in needed_blocks(model, f"{path}.offload", "take activations out"):
        block.forward = partial(_offloaded, block, block.forward)


def _offloaded(block: nn.Module, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if not torch.is_grad_enabled():
        return forward(*args, **kwargs)
    weights = {parameter.untyped_storage().data_ptr() for parameter in block.parameters()}

    def pack(tensor: Tensor) -> tuple[Tensor, torch.device | None]:
        return (tensor, None) if tensor.untyped_storage().data_ptr() in weights else (_to_cpu(tensor), tensor.device)

    with torch.autograd.graph.saved_tensors_hooks(pack, _to_device):
        return forward(*args, **kwargs)


def _to_cpu(tensor: Tensor) -> Tensor:
    # Pinned, so that the GPU continues meanwhile; later copies on the same stream wait for this one.
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, device=CPU, pin_memory=tensor.is_cuda)
    return copy.copy_(tensor, non_blocking=True)


def _to_device(packed: tuple[Tensor, torch.device | None]) -> Tensor:
    tensor, device = packed
    return tensor if device is None else tensor.to(device, non_blocking=True)
