"""Cached shardings of operations on DTensors, compared with DTensor's for each rank and other degrees."""

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor._sharding_prop import ShardingPropagator

from tests.unit.plan.test_depth import llama, planned
from understudy.plan import shardings as module
from understudy.plan import simulation
from understudy.plan.simulation import simulated_rank
from understudy.plan.trace import traces
from understudy.recipe import Degrees


@pytest.fixture(autouse=True)
def _empty_cache() -> Iterator[None]:
    module._remembered.clear()
    yield
    module._remembered.clear()


def computed_operations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The operations whose sharding DTensor itself computes from here on."""
    operations, original = [], ShardingPropagator.propagate_op_sharding_non_cached

    def watched(self: ShardingPropagator, schema: Any) -> Any:
        operations.append(str(schema.op))
        return original(self, schema)

    monkeypatch.setattr(ShardingPropagator, "propagate_op_sharding_non_cached", watched)
    return operations


def product(mesh_degrees: Degrees, rank: int, rows: int) -> tuple[Any, ...]:
    """The properties of a product of two sharded tensors on a rank."""
    with simulated_rank(planned(llama(2)).train, mesh_degrees, rank, torch.float32) as spread:
        mesh = spread.meshes.tp
        first = DTensor.from_local(torch.zeros(rows, 4), mesh, [Shard(0)])
        second = DTensor.from_local(torch.zeros(4, 6), mesh, [Replicate()])
        result = first @ second
        return result.device_mesh is mesh, result.placements, result.shape, result.to_local().shape


def test_another_rank_and_other_degrees_get_the_cached_result_on_their_mesh(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    operations = computed_operations(monkeypatch)
    results = {
        product(mesh_degrees, rank, 2)
        for mesh_degrees, rank in [(Degrees(pp=2, tp=2), 0), (Degrees(pp=2, tp=2), 2), (Degrees(dp_shard=2, tp=2), 0)]
    }
    assert results == {(True, (Shard(0),), (4, 6), (2, 6))}
    assert operations.count("aten.mm.default") == 1


@pytest.mark.parametrize(
    ("mesh_degrees", "rank", "rows"),
    [
        (Degrees(pp=2, tp=2), 0, 3),
        (Degrees(pp=2, tp=2), 1, 2),
        (Degrees(tp=4), 0, 2),
        (Degrees(dp_shard=4, tp=2), 0, 2),
    ],
)
def test_other_sizes_coordinates_and_meshes_are_computed(
    monkeypatch: pytest.MonkeyPatch, mesh_degrees: Degrees, rank: int, rows: int
) -> None:
    operations = computed_operations(monkeypatch)
    product(Degrees(pp=2, tp=2), 0, 2)
    product(mesh_degrees, rank, rows)
    assert operations.count("aten.mm.default") == 2


WAYS: list[tuple[dict[str, int], dict[str, Any]]] = [
    ({"tp": 2}, {}),
    ({"dp_replicate": 2, "tp": 2}, {"activation_checkpointing": "full"}),
    ({"dp_shard": 2, "cp": 2, "tp": 2}, {"activation_checkpointing": "selective"}),
    ({"dp_shard": 4, "tp": 2}, {}),
    ({"pp": 2, "dp_shard": 2, "tp": 2}, {"activation_checkpointing": "full"}),
    ({"dp_replicate": 2, "dp_shard": 4}, {"batch_size": 32}),
]


@pytest.mark.full
def test_a_trace_is_the_same_to_the_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the cached results of other degrees' traces."""

    def traced(degrees: dict[str, int], train: dict[str, Any]) -> str:
        return repr(traces(planned(llama(4), llama(3), **train), Degrees(**degrees), "cuda", torch.bfloat16))

    quick = [traced(*arguments) for arguments in (*WAYS, *WAYS)]
    monkeypatch.setattr(simulation, "remembered_shardings", nullcontext)
    assert quick == [traced(*arguments) for arguments in WAYS] * 2
