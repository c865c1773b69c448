from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from understudy.recipe import Degrees, degrees

STRATEGIES = ["single", "ddp", "zero1", "zero2", "zero3", "fsdp", "hsdp", "tp", "pp", "3d"]


@pytest.mark.parametrize(
    ("strategy", "nodes", "processes", "expected"),
    [
        ("single", 1, 1, (1, 1, 1, 3)),
        ("ddp", 1, 1, (1, 1, 1, 3)),
        ("ddp", 1, 4, (4, 1, 1, 3)),
        ("ddp", 2, 3, (6, 1, 1, 3)),
        ("fsdp", 1, 4, (1, 4, 1, 3)),
        ("fsdp", 2, 4, (1, 8, 1, 3)),
        ("zero1", 1, 4, (1, 4, 1, 1)),
        ("zero1", 1, 1, (1, 1, 1, 3)),
        ("zero2", 2, 2, (1, 4, 1, 2)),
        ("zero3", 1, 4, (1, 4, 1, 3)),
        ("hsdp", 1, 4, (2, 2, 1, 3)),
        ("hsdp", 1, 8, (2, 4, 1, 3)),
        ("hsdp", 2, 4, (2, 4, 1, 3)),
        ("hsdp", 3, 2, (3, 2, 1, 3)),
        ("tp", 1, 4, (1, 1, 4, 3)),
        ("cp", 1, 1, (1, 1, 1, 3)),
        ("dp", 1, 1, (1, 1, 1, 3)),
        (Degrees(dp_replicate=2, dp_shard=3), 1, 6, (2, 3, 1, 3)),
        (Degrees(dp_shard=3, tp=2), 3, 2, (1, 3, 2, 3)),
    ],
)
def test_a_strategys_name_is_short_for_degrees(
    strategy: Any, nodes: int, processes: int, expected: tuple[int, int, int, int]
) -> None:
    names = ("dp_replicate", "dp_shard", "tp", "zero_stage")
    assert degrees(strategy, nodes, processes) == Degrees.model_validate(dict(zip(names, expected, strict=True)))


@given(st.sampled_from(["ddp", "zero1", "zero2", "fsdp", "tp", "cp", "pp"]), st.integers(1, 5), st.integers(1, 9))
def test_one_degree_alone_takes_every_process(strategy: Any, nodes: int, processes: int) -> None:
    assert degrees(strategy, nodes, processes).world_size == nodes * processes


@given(st.integers(2, 5), st.integers(2, 9))
def test_copies_of_shards_keep_the_shards_within_a_node(nodes: int, processes: int) -> None:
    assert degrees("hsdp", nodes, processes) == Degrees(dp_replicate=nodes, dp_shard=processes)


@pytest.mark.parametrize(
    ("nodes", "processes", "expected"),
    [
        (1, 8, Degrees(pp=2, dp_shard=2, tp=2)),
        (1, 12, Degrees(pp=2, dp_shard=3, tp=2)),
        (2, 4, Degrees(pp=2, dp_shard=2, tp=2)),
        (4, 8, Degrees(pp=4, dp_shard=4, tp=2)),
    ],
)
def test_three_dimensions_are_stages_over_nodes_and_split_layers_between_neighbours(
    nodes: int, processes: int, expected: Degrees
) -> None:
    assert degrees("3d", nodes, processes) == expected


@pytest.mark.parametrize(
    ("strategy", "nodes", "processes", "message"),
    [
        ("single", 1, 2, r"single is for one process, but resources\.processes is 2; use ddp, fsdp or hsdp"),
        ("hsdp", 1, 3, r"resources\.processes must be 4, 6, 8, \.\.\., and is 3"),
        ("hsdp", 2, 1, r"hsdp shards inside a node"),
        ("dp", 1, 2, r"dp is one process that drives all GPUs it sees, but resources\.processes is 2; use ddp"),
        (
            "3d",
            1,
            6,
            r"3d has two parts of each layer and two shards or more in a stage: resources\.processes must ",
        ),
        ("3d", 1, 7, r"resources\.processes must be 8, 12, 16, \.\.\., and is 7; or write degrees"),
        ("3d", 1, 10, r"resources\.processes must be 8, 12, 16"),
        ("3d", 4, 2, r"resources\.processes must be 4, 6, 8, \.\.\., and is 2"),
        ("3d", 4, 5, r"resources\.processes must be 4, 6, 8"),
        (Degrees(dp_replicate=2, dp_shard=2), 1, 2, r"^dp_replicate x dp_shard is 4, but resources\.processes is 2"),
        (Degrees(pp=2, dp_shard=2), 2, 1, r"^pp x dp_replicate x dp_shard is 4, but"),
        (Degrees(dp_shard=2, tp=2), 2, 1, r"dp_shard x tp is 4, but resources\.nodes x processes is 2 x 1"),
    ],
)
def test_splitthat_do_not_fit_the_processes_are_refused(
    strategy: Any, nodes: int, processes: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        degrees(strategy, nodes, processes)


def test_a_stage_without_shards_is_refused() -> None:
    with pytest.raises(ValidationError, match="zero_stage is for shards, and dp_shard is 1"):
        Degrees(dp_replicate=2, zero_stage=1)


def test_only_split_sequences_go_in_a_ring() -> None:
    with pytest.raises(ValidationError, match="cp_comm_type is for processes that share sequences, and cp is 1"):
        Degrees(dp_shard=2, cp_comm_type="ring")
    ring = Degrees(cp=4, tp=2, cp_comm_type="ring")
    assert (ring.sequence_parts, ring.head_parts, str(ring)) == (8, 2, "cp 4 x tp 2 (ring)")
    assert (Degrees(cp=4, tp=2).sequence_parts, Degrees(cp=4, tp=2).head_parts) == (4, 8)


@pytest.mark.parametrize("degrees", [{"dp_shard": 2}, {"tp": 2, "pp": 2}])
def test_only_layers_that_are_split_have_norms_of_some_positions(degrees: dict[str, int]) -> None:
    with pytest.raises(ValidationError, match="sequence_parallel is for layers split by tp, without stages of pp"):
        Degrees.model_validate({**degrees, "sequence_parallel": True})
    split = Degrees(cp=2, tp=3, sequence_parallel=True)
    assert (split.sequence_parts, str(split)) == (6, "cp 2 x tp 3 (sequence parallel)")


def test_only_a_sharded_model_shards() -> None:
    sharded = {name for name in STRATEGIES[1:] if degrees(name, 1, 8).shards}  # type: ignore[arg-type]
    assert sharded == {"zero1", "zero2", "zero3", "fsdp", "hsdp", "3d"}


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4))
def test_who_shares_layers_reads_the_same(replicate: int, shard: int, tp: int) -> None:
    degrees = Degrees(dp_replicate=replicate, dp_shard=shard, tp=tp)
    assert degrees.readers * tp == degrees.world_size
