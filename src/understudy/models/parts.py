"""This rank's part of a tensor, in a model that is sharded over ranks."""

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import Placement, _StridedShard

Part = tuple[slice, ...]
"""A slice for each dimension of the full tensor."""


def local_slices(tensor: Tensor) -> Part:
    """The slices of the full tensor that are this rank's shard: all of it, unless the tensor is a sharded DTensor."""
    return tuple(_slice(tensor, dimension) for dimension in range(tensor.ndim))


def local_tensor(tensor: Tensor) -> Tensor:
    """This rank's shard of a tensor, as a plain tensor with the same memory."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def full_tensor(tensor: Tensor) -> Tensor:
    """The full tensor, all-gathered if it is a DTensor. To be called on every rank."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _slice(tensor: Tensor, dimension: int) -> slice:
    size = tensor.shape[dimension]
    if not isinstance(tensor, DTensor):
        return slice(0, size)
    # Apply this dimension's placements to the indices 0, 1, ... to get those of this rank.
    placements = [_along(placement, dimension) for placement in tensor.placements]
    if all(placement.is_replicate() for placement in placements):
        return slice(0, size)
    indices = torch.arange(size, device=tensor.device_mesh.device_type)
    local = local_tensor(distribute_tensor(indices, tensor.device_mesh, placements, src_data_rank=None))
    if not len(local):
        return slice(0, 0)
    first, last = int(local[0]), int(local[-1])
    assert last - first + 1 == len(local), "a rank's part of a dimension is one piece"
    return slice(first, last + 1)


def _along(placement: Placement, dimension: int) -> Placement:
    """The placement of a vector that is sharded like this dimension."""
    if isinstance(placement, _StridedShard) and placement.dim == dimension:
        return _StridedShard(0, split_factor=placement.split_factor)
    return Shard(0) if isinstance(placement, Shard) and placement.dim == dimension else Replicate()
