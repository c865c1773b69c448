from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.errors import InputError
from understudy.parallel.mesh import ParallelDegrees, degrees, meshes
from understudy.recipe import Degrees

STRATEGIES = ["single", "ddp", "fsdp", "hsdp"]


@pytest.mark.parametrize(
    ("strategy", "nodes", "processes", "expected"),
    [
        ("single", 1, 1, (1, 1)),
        ("ddp", 1, 1, (1, 1)),
        ("ddp", 1, 4, (4, 1)),
        ("ddp", 2, 3, (6, 1)),
        ("fsdp", 1, 4, (1, 4)),
        ("fsdp", 2, 4, (1, 8)),
        ("hsdp", 1, 4, (2, 2)),
        ("hsdp", 1, 8, (2, 4)),
        ("hsdp", 2, 4, (2, 4)),
        ("hsdp", 3, 2, (3, 2)),
        (Degrees(dp_replicate=2, dp_shard=3), 1, 6, (2, 3)),
        (Degrees(dp_replicate=2, dp_shard=3), 3, 2, (2, 3)),
    ],
)
def test_a_strategys_name_is_short_for_degrees(
    strategy: Any, nodes: int, processes: int, expected: tuple[int, int]
) -> None:
    assert degrees(strategy, nodes, processes) == ParallelDegrees(*expected)


@given(st.sampled_from(["ddp", "fsdp"]), st.integers(1, 5), st.integers(1, 9))
def test_copies_or_shards_alone_take_every_process(strategy: str, nodes: int, processes: int) -> None:
    assert degrees(strategy, nodes, processes).world_size == nodes * processes


@given(st.integers(2, 5), st.integers(1, 9))
def test_copies_of_shards_keep_the_shards_within_a_node(nodes: int, processes: int) -> None:
    assert degrees("hsdp", nodes, processes) == ParallelDegrees(nodes, processes)


@pytest.mark.parametrize(
    ("strategy", "processes", "message"),
    [
        ("single", 2, r"train\.strategy: single takes 1 processes, resources give 1 x 2"),
        ("hsdp", 3, r"hsdp takes 2 processes, resources give 1 x 3"),
        ("hsdp", 1, r"hsdp takes 2 processes, resources give 1 x 1"),
        (Degrees(dp_replicate=2, dp_shard=2), 2, r"takes 4 processes, resources give 1 x 2"),
    ],
)
def test_degrees_that_do_not_fit_the_processes_are_refused(strategy: Any, processes: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        degrees(strategy, 1, processes)


def test_only_a_sharded_model_shards() -> None:
    assert [degrees(name, 1, 4).shards for name in STRATEGIES[1:]] == [False, True, True]


def placed(replicate: int, shard: int) -> tuple[list[int], ...]:
    """The ranks that hold the same part as this one, that share a copy with it, and that read other data."""
    import torch.distributed as dist

    dist.init_process_group("gloo")
    try:
        over = meshes(ParallelDegrees(replicate, shard), "cpu")
        shards = over.fsdp["dp_shard"] if over.fsdp.ndim > 1 else over.fsdp
        named = (over.replicate, shards, over.batch, over.loss)
        return tuple(dist.get_process_group_ranks(mesh.get_group()) for mesh in named)
    finally:
        dist.destroy_process_group()


def test_neighbours_share_a_copy_of_the_model(ranks: Any) -> None:
    """Ranks of one node are neighbours: the traffic of sharding stays between them."""
    everyone = [0, 1, 2, 3]
    assert ranks.run(4, placed, 2, 2) == [
        ([0, 2], [0, 1], everyone, everyone),
        ([1, 3], [0, 1], everyone, everyone),
        ([0, 2], [2, 3], everyone, everyone),
        ([1, 3], [2, 3], everyone, everyone),
    ]
