"""Memory of nodes, compared with that of real processes."""

import subprocess
import sys
from typing import Any

import pytest

from tests.ranks.plan.test_disk import estimate
from tests.unit.plan.test_depth import llama, planned
from understudy.plan.hardware import Hardware, table
from understudy.plan.host import host_memory
from understudy.plan.job import Job
from understudy.recipe import Degrees

GIB = 2**30
CPU = Hardware(memory=16, tflops={"fp32": 0.1}, link=1, network=1, price=0, host=0.5)
GPU = Hardware(memory=16, tflops={"fp32": 10}, link=1, network=1, price=0, host=1.5)


def job(processes: int, memory: int | None = None) -> tuple[Job, Any]:
    training = planned(llama(2))
    return Job("teacher", "teacher", training, 2, processes, None, memory), estimate(
        training, Degrees(dp_replicate=2 * processes)
    )


def test_ranks_on_cpus_have_their_tensors_in_it() -> None:
    training, step = job(2)
    memory = host_memory(training, step, CPU)
    assert memory.processes == GIB
    assert memory.tensors == 2 * step.traced.peak.bytes
    assert memory.checkpoint == 2 * step.traced.state
    assert memory.all == memory.processes + memory.tensors + memory.checkpoint


def test_ranks_on_gpus_have_their_processes_and_what_is_copied_for_a_checkpoint() -> None:
    training, step = job(2)
    memory = host_memory(training, step, GPU)
    assert (memory.processes, memory.tensors, memory.checkpoint) == (3 * GIB, 0, 2 * step.traced.state)


@pytest.mark.parametrize(("more", "fits"), [(-1, False), (0, True), (None, True)])
def test_a_node_s_memory_is_enough_or_not_where_the_recipe_says_it(more: int | None, fits: bool) -> None:
    training, step = job(2)
    takes = host_memory(training, step, CPU).all
    limited, _ = job(2, None if more is None else takes + more)
    assert host_memory(limited, step, CPU).fits is fits


@pytest.mark.full
def test_a_process_takes_what_the_table_says_of_cpus() -> None:
    code = (
        "import transformers.modeling_utils, understudy.train.job\n"
        "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmRSS:')))"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert int(output) / 2**20 == pytest.approx(table()["CPU"].host, rel=0.2)
