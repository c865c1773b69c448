"""The machine for which a training is planned."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from tests import ROOT
from understudy.errors import InputError
from understudy.host_memory import available_memory
from understudy.plan.hardware import table
from understudy.plan.job import Job, jobs
from understudy.plan.machine import Gpu, gpus, machine_for
from understudy.recipe.file import load

GIB = 2**30
A100 = Gpu("NVIDIA A100-SXM4-80GB", 79 * GIB, (8, 0))
SMALLER = Gpu("NVIDIA A100-PCIE-40GB", 39 * GIB, (8, 0))
T4 = Gpu("Tesla T4", 15 * GIB, (7, 5))


@pytest.fixture(scope="module")
def job() -> Job:
    return next(iter(jobs(load(ROOT / "recipes/digits.yaml"))))


@pytest.mark.parametrize(
    ("changes", "name", "local_gpus", "kind", "reason"),
    [
        ({}, None, [], "CPU", "this machine's, which has"),
        ({}, None, [T4], "T4", "this machine's, which has 1"),
        ({}, None, [A100, SMALLER], "A100", "this machine's, which has 2"),
        ({}, "L4", [A100], "L4", ""),
        ({"hardware": "L4"}, None, [A100], "L4", ""),
        ({"hardware": "L4"}, "H200", [], "H200", ""),
        ({"device": "cpu", "hardware": "CPU"}, None, [A100], "CPU", "this machine's"),
        ({"device": "cpu", "hardware": "CPU", "nodes": 2}, None, [A100], "CPU", ""),
        ({"device": "cpu", "hardware": "CPU", "memory": GIB}, None, [A100], "CPU", ""),
        ({"device": "cuda"}, None, [T4], "T4", "this machine's"),
        ({"device": "cuda"}, None, [], "H100", "assumed, since the recipe asks for GPUs, and this machine has none"),
        ({"nodes": 2}, None, [T4], "H100", "assumed, since the recipe asks for several nodes"),
        ({"nodes": 2}, None, [], "H100", "assumed"),
    ],
)
def test_the_named_hardware_counts_then_the_recipes_then_this_machines(
    job: Job, changes: dict[str, object], name: str | None, local_gpus: list[Gpu], kind: str, reason: str
) -> None:
    machine = machine_for(replace(job, **changes), name, table(), local_gpus)  # type: ignore[arg-type]
    assert machine.kind == kind
    assert machine.reason.startswith(reason)
    assert bool(machine.reason) == bool(reason)
    if not reason.startswith("this"):
        assert machine.hardware == table()[kind]
    elif kind != "CPU":
        assert machine.hardware.memory == min(gpu.memory for gpu in local_gpus) / GIB


def test_a_cpu_s_processes_share_its_memory(job: Job) -> None:
    for processes in (1, 2, 4):
        machine = machine_for(replace(job, processes=processes), None, table(), [])
        needed = (machine.hardware.memory + machine.hardware.host) * processes
        assert needed == pytest.approx(available_memory() / GIB, rel=0.1)
        assert not machine.hardware.is_gpu


PROPERTIES = [
    # As torch.cuda.get_device_properties has them: name, bytes, major, minor; then the row whose speeds order degrees.
    ("NVIDIA GeForce RTX 4090", 25_386_352_640, 8, 9, "L4", {"fp32", "fp16", "bf16", "fp8"}),
    ("NVIDIA GeForce RTX 3090", 25_438_126_080, 8, 6, "L4", {"fp32", "fp16", "bf16"}),
    ("NVIDIA GeForce RTX 2080 Ti", 11_546_394_624, 7, 5, "T4", {"fp32", "fp16"}),
    ("NVIDIA GeForce GTX 1080 Ti", 11_714_691_072, 6, 1, "T4", {"fp32", "fp16"}),
    ("NVIDIA RTX A6000", 51_033_931_776, 8, 6, "L40S", {"fp32", "fp16", "bf16"}),
    ("NVIDIA L40", 47_697_362_944, 8, 9, "L40S", {"fp32", "fp16", "bf16", "fp8"}),
    ("NVIDIA B200", 191_501_926_400, 10, 0, "H200", {"fp32", "fp16", "bf16", "fp8"}),
    ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", 10_200_547_328, 8, 0, "L4", {"fp32", "fp16", "bf16"}),
    ("NVIDIA T400 4GB", 3_976_003_584, 7, 5, "T4", {"fp32", "fp16"}),
]


@pytest.mark.parametrize(("name", "memory", "major", "minor", "row", "precisions"), PROPERTIES)
def test_a_gpu_without_a_row_has_its_own_memory_and_no_times(
    monkeypatch: pytest.MonkeyPatch,
    job: Job,
    name: str,
    memory: int,
    major: int,
    minor: int,
    row: str,
    precisions: set[str],
) -> None:
    properties = SimpleNamespace(name=name, total_memory=memory, major=major, minor=minor)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    machine = machine_for(job, None, table(), gpus())
    assert (machine.kind, machine.has_times) == (name, False)
    assert machine.hardware.memory == memory / GIB
    assert machine.hardware.tflops.keys() == precisions
    assert (machine.hardware.is_gpu, machine.hardware.price) == (True, 0.0)
    assert machine.hardware.link == table()[row].link
    assert machine.reason.startswith("this machine's, which has 2; it is not in the table, so no times are given")
    assert f"as for {row}, " in machine.reason


@pytest.mark.parametrize("gpu", [A100, SMALLER, T4])
def test_a_gpu_with_a_row_has_times(job: Job, gpu: Gpu) -> None:
    assert machine_for(job, None, table(), [gpu]).has_times


@pytest.mark.parametrize(
    ("rows", "row"),
    [
        (["NVIDIA GeForce RTX 4090"], "NVIDIA GeForce RTX 4090"),
        (["RTX 4090"], "RTX 4090"),
        (["4090"], "4090"),
        (["RTX", "RTX 4090"], "RTX 4090"),
        (["RTX-4090"], "RTX-4090"),
        (["GeForce RTX 40"], None),
        (["RTX 4090 Ti"], None),
    ],
)
def test_a_row_of_ones_own_may_have_as_many_words_as_the_gpu_s_name(job: Job, rows: list[str], row: str | None) -> None:
    hardware_table = {**table(), **dict.fromkeys(rows, table()["L4"])}
    machine = machine_for(job, None, hardware_table, [Gpu("NVIDIA GeForce RTX 4090", 24 * GIB, (8, 9))])
    assert machine.has_times == (row is not None)
    assert row is None or machine.kind == row


def test_a_part_of_a_gpu_has_times_where_a_row_is_named_for_it(job: Job) -> None:
    part = Gpu("NVIDIA A100-SXM4-80GB MIG 1g.10gb", 10 * GIB, (8, 0))
    hardware_table = {**table(), "A100-SXM4-80GB MIG 1g.10gb": table()["T4"]}
    assert machine_for(job, None, hardware_table, [part]).has_times
    assert not machine_for(job, None, table(), [part]).has_times


@pytest.mark.parametrize("rows", [{"CPU"}, {"CPU", "T4"}, {"A100"}])
def test_a_gpu_that_no_row_is_like_is_refused_with_the_ways_out(job: Job, rows: set[str]) -> None:
    hardware_table = {kind: row for kind, row in table().items() if kind in rows}
    with pytest.raises(
        InputError, match=r"this machine's GPU, NVIDIA B1000, is not in the table, .*--hardware.*--table"
    ):
        machine_for(job, None, hardware_table, [Gpu("NVIDIA B1000", GIB, (12, 0))])


def test_a_cluster_s_hardware_that_is_in_no_row_is_refused(job: Job) -> None:
    with pytest.raises(InputError, match=r"H100 is not in the table \(L4\)"):
        machine_for(replace(job, nodes=2), None, {"L4": table()["L4"]}, [])
