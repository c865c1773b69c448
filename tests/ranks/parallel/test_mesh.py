from typing import Any

from understudy.parallel.mesh import meshes
from understudy.recipe import Degrees


def placed(replicate: int, shard: int, tp: int) -> tuple[list[int], ...]:
    """The ranks that hold the same part as this one, that share a copy with it, and that read other data."""
    import torch.distributed as dist

    dist.init_process_group("gloo")
    try:
        over = meshes(Degrees(dp_replicate=replicate, dp_shard=shard, tp=tp), "cpu")
        shards = over.fsdp["dp_shard_cp"] if over.fsdp.ndim > 1 else over.fsdp
        named = (over.replicate, shards, over.batch, over.loss, over.tp)
        return tuple(dist.get_process_group_ranks(mesh.get_group()) for mesh in named)
    finally:
        dist.destroy_process_group()


def test_neighbours_share_a_copy_of_the_model(ranks: Any) -> None:
    """Ranks of one node are neighbours: the traffic of sharding stays between them."""
    everyone = [0, 1, 2, 3]
    assert ranks.run(4, placed, 2, 2, 1) == [
        ([0, 2], [0, 1], everyone, everyone, [0]),
        ([1, 3], [0, 1], everyone, everyone, [1]),
        ([0, 2], [2, 3], everyone, everyone, [2]),
        ([1, 3], [2, 3], everyone, everyone, [3]),
    ]


def test_ranks_that_share_layers_are_nearest_and_read_the_same(ranks: Any) -> None:
    assert ranks.run(4, placed, 1, 2, 2) == [
        ([0], [0, 2], [0, 2], [0, 2], [0, 1]),
        ([1], [1, 3], [1, 3], [1, 3], [0, 1]),
        ([2], [0, 2], [0, 2], [0, 2], [2, 3]),
        ([3], [1, 3], [1, 3], [1, 3], [2, 3]),
    ]
