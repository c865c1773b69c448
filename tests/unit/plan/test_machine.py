"""What a training is planned for."""

from dataclasses import replace

import pytest

from tests import ROOT
from understudy.errors import InputError
from understudy.plan.hardware import table
from understudy.plan.job import Job, jobs
from understudy.plan.machine import Gpu, machine_for
from understudy.recipe.file import load
from understudy.train.memory import available_memory

GIB = 2**30
A100 = Gpu("NVIDIA A100-SXM4-80GB", 79 * GIB)
SMALLER = Gpu("NVIDIA A100-PCIE-40GB", 39 * GIB)
T4 = Gpu("Tesla T4", 15 * GIB)


@pytest.fixture(scope="module")
def job() -> Job:
    return next(iter(jobs(load(ROOT / "recipes/digits.yaml"))))


@pytest.mark.parametrize(
    ("changes", "named", "here", "kind", "words"),
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
def test_it_is_what_was_named_or_else_what_is_here(
    job: Job, changes: dict[str, object], named: str | None, here: list[Gpu], kind: str, words: str
) -> None:
    found = machine_for(replace(job, **changes), named, table(), here)  # type: ignore[arg-type]
    assert found.kind == kind
    assert found.reason.startswith(words)
    assert bool(found.reason) == bool(words)
    if not words.startswith("this"):
        assert found.hardware == table()[kind]
    elif kind != "CPU":
        assert found.hardware.memory == min(gpu.memory for gpu in here) / GIB


def test_a_cpu_s_processes_share_its_memory(job: Job) -> None:
    for processes in (1, 2, 4):
        found = machine_for(replace(job, processes=processes), None, table(), [])
        needed = (found.hardware.memory + found.hardware.host) * processes
        assert needed == pytest.approx(available_memory() / GIB, rel=0.1)
        assert not found.hardware.is_gpu


def test_a_gpu_that_no_row_is_about_is_refused_with_the_ways_out(job: Job) -> None:
    with pytest.raises(
        InputError, match=r"this machine's GPU, NVIDIA B1000, is not in the table .*--hardware.*--table"
    ):
        machine_for(job, None, table(), [Gpu("NVIDIA B1000", GIB)])
    with pytest.raises(InputError, match=r"H100 is not in the table \(L4\)"):
        machine_for(replace(job, nodes=2), None, {"L4": table()["L4"]}, [])
