"""The ledger of memory: live bytes by kind, and the peak."""

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed import _functional_collectives as collectives
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.profiler import ProfilerActivity, profile

from understudy.plan.ledger import Ledger

MIB = 2**20
MESH = (0, 1)
Send = Callable[[Tensor, DeviceMesh], Tensor]


def mib(count: int) -> torch.Tensor:
    return torch.zeros(count * MIB // 4)


def test_the_peak_has_its_phase_and_kinds() -> None:
    ledger = Ledger(vocabulary=7, grain=1)
    with FakeTensorMode(), ledger.watching():
        resident = mib(2)
        ledger.phase = "forward and backward"
        _ = [mib(3), mib(4)]
        del _
        ledger.phase = "optimizer step"
        last = mib(1)
    peak = ledger.peak()
    assert (peak.bytes, peak.phase) == (9 * MIB, "forward and backward")
    assert peak.kinds == {"activations": 7 * MIB, "temporary": 2 * MIB}
    del resident, last


def test_a_view_keeps_its_storage_alive_and_is_counted_once() -> None:
    ledger = Ledger(vocabulary=7, grain=1)
    with FakeTensorMode(), ledger.watching():
        view = mib(2)[:5].view(5, 1)
        second = mib(1)
    assert ledger.peak().bytes == 3 * MIB
    del view, second


def test_live_tensors_are_still_counted_after_forget() -> None:
    ledger = Ledger(vocabulary=7, grain=1)
    with FakeTensorMode(), ledger.watching():
        resident = mib(1)
        freed = mib(5)
        del freed
        ledger.forget()
        later = mib(2)
    assert ledger.peak().bytes == 3 * MIB
    del resident, later


def test_a_resized_storage_is_counted_with_its_new_size() -> None:
    """As fully_shard does with all-gathered parameters."""
    ledger = Ledger(vocabulary=7, grain=1)
    with FakeTensorMode(), ledger.watching():
        gathered = mib(4)
        gathered.untyped_storage().resize_(0)
        ledger.forget()
        second = mib(1)
        assert ledger.peak().bytes == MIB
        gathered.untyped_storage().resize_(4 * MIB)
    assert ledger.peak().kinds == {"communication": 4 * MIB, "temporary": MIB}
    del second


def test_kinds_can_be_said_and_sizes_are_rounded_up() -> None:
    ledger = Ledger(vocabulary=7, grain=512)
    with FakeTensorMode(), ledger.watching():
        weight = torch.zeros(3)
        ledger.mark("parameters", [weight])
        logits = torch.zeros(2, 7)
    assert ledger.peak().kinds == {"parameters": 512, "logits": 512}
    del logits


def test_operations_are_counted_also_where_torch_has_not_taken_them_apart() -> None:
    ledger = Ledger(vocabulary=7, grain=1)
    with FakeTensorMode(), ledger.watching():
        product = torch.nn.Linear(4, 5)
        with torch.inference_mode():
            product(torch.zeros(3, 4))
    assert ledger.flops == 2 * 3 * 4 * 5


def redistributed(before: Placement, after: Placement) -> Send:
    def send(local: Tensor, mesh: DeviceMesh) -> Tensor:
        tensor = DTensor.from_local(local, mesh, [before], run_check=False)
        return tensor.redistribute(placements=[after]).to_local()

    return send


SENT: dict[str, Send] = {
    "all_gather, rows": lambda local, mesh: collectives.all_gather_single(local, 0, mesh) + 1,
    "all_gather, columns": lambda local, mesh: collectives.all_gather_single(local, 1, mesh) + 1,
    "all_reduce": lambda local, mesh: collectives.all_reduce(local, "sum", mesh) + 1,
    "reduce_scatter": lambda local, mesh: collectives.reduce_scatter_single(local, "sum", 0, mesh) + 1,
    "DTensor, rows to whole": redistributed(Shard(0), Replicate()),
    "DTensor, columns to whole": redistributed(Shard(1), Replicate()),
    "DTensor, partial to whole": redistributed(Partial(), Replicate()),
    "DTensor, partial to rows": redistributed(Partial(), Shard(0)),
    "DTensor, rows to columns": redistributed(Shard(0), Shard(1)),
}


@pytest.fixture
def two_ranks() -> Iterator[DeviceMesh]:
    """A mesh whose other rank does not exist: collectives allocate as usual, and send nothing."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield DeviceMesh("cpu", MESH)
    dist.destroy_process_group()


def forward_and_backward(send: Send, mesh: DeviceMesh) -> None:
    local = mib(1).view(512, 512).requires_grad_()
    (send(local.clone(), mesh) * 2).sum().backward()


def most_allocated(events: Iterable[dict[str, Any]]) -> int:
    """The most bytes that were allocated at once, by the events of torch's profiler."""
    allocated: dict[int, int] = {}
    largest = 0
    for event in sorted((event for event in events if event.get("name") == "[memory]"), key=lambda event: event["ts"]):
        size, address = event["args"]["Bytes"], event["args"]["Addr"]
        if size > 0:
            allocated[address] = size
        else:
            allocated.pop(address, None)
        largest = max(largest, sum(allocated.values()))
    return largest


@pytest.mark.parametrize("sent", SENT)
def test_a_collective_takes_the_same_memory_on_fake_tensors_as_on_real_ones(
    tmp_path: Path, two_ranks: DeviceMesh, sent: str
) -> None:
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        forward_and_backward(SENT[sent], two_ranks)
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    measured = most_allocated(json.loads((tmp_path / "trace.json").read_text())["traceEvents"])
    ledger = Ledger(vocabulary=7, grain=1)
    with FakeTensorMode(), ledger.watching():
        forward_and_backward(SENT[sent], two_ranks)
    assert ledger.peak().bytes == pytest.approx(measured, abs=1000)  # numbers that become tensors are a few bytes each
