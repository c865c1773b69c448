from typing import Any

import pytest
import torch
from torch import nn

from understudy.models.parts import local_slices, local_tensor

SHAPES = [(8, 6), (7, 5), (5,), (2, 3, 4), (1, 1)]


def test_a_tensor_that_is_not_spread_is_kept_whole() -> None:
    tensor = torch.zeros(3, 4)
    assert local_slices(tensor) == (slice(0, 3), slice(0, 4))
    assert local_tensor(tensor) is tensor
    assert local_slices(torch.tensor(1.0)) == ()


def sharded(shape: tuple[int, ...]) -> list[bool]:
    """Whether this rank's memory has its part of the full tensor, for all layouts."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    dist.init_process_group("gloo")
    try:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("fsdp", "tp"))
        full_tensor = torch.arange(float(torch.Size(shape).numel())).view(shape)
        last = len(shape) - 1
        layouts = [
            distribute_tensor(full_tensor, mesh["tp"], [Shard(last)]),
            distribute_tensor(full_tensor, mesh, [Shard(0), Shard(last)]),
            distribute_tensor(full_tensor, mesh, [Replicate(), Shard(0)]),
        ]
        module = nn.Module()  # split by tp, then sharded in the same dimension
        module.weight = nn.Parameter(distribute_tensor(full_tensor, mesh["tp"], [Shard(0)]))
        fully_shard(module, mesh=mesh["fsdp"])
        layouts += module.parameters()
        return [torch.equal(local_tensor(tensor), full_tensor[local_slices(tensor)]) for tensor in layouts]
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("shape", SHAPES)
def test_a_rank_knows_its_part_of_the_whole(ranks: Any, shape: tuple[int, ...]) -> None:
    assert ranks.run(4, sharded, shape) == [[True] * 4] * 4
