"""What a training is planned for: the kind of hardware that is named, or else this machine."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from understudy.errors import InputError
from understudy.plan.hardware import Hardware
from understudy.plan.job import Job
from understudy.train.memory import available_memory

CLUSTER = "H100"
"""What the nodes of a cluster are taken to have where the recipe does not name it."""
GIB = 2**30


@dataclass(frozen=True)
class Machine:
    """Hardware, and why it is that."""

    kind: str
    hardware: Hardware
    reason: str = ""
    """In words; empty where it was named."""


@dataclass(frozen=True)
class Gpu:
    """One of this machine's."""

    name: str
    memory: int
    """Bytes."""


def gpus() -> list[Gpu]:
    """The GPUs that torch sees."""
    import torch

    found = [torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count())]
    return [Gpu(device.name, device.total_memory) for device in found]


def machine_for(job: Job, named: str | None, known: Mapping[str, Hardware], here: Sequence[Gpu]) -> Machine:
    """What a training is planned for: what the caller names, or the recipe; without a name a cluster's GPUs for what
    cannot run here, and otherwise what this machine has.

    Args:
        job: the training.
        named: a kind by its name in the table.
        known: the table.
        here: this machine's GPUs.

    Raises:
        InputError: the recipe's kind, or this machine's GPU, is not in the table.
    """
    kind = named or (None if _is_here(job) else job.hardware)
    if kind:
        if kind not in known:
            raise InputError(f"resources.{job.name}.hardware: {kind} is not in the table ({', '.join(known)})")
        return Machine(kind, known[kind])
    if job.nodes > 1 or (job.device == "cuda" and not here):
        why = "several nodes" if job.nodes > 1 else "GPUs, and this machine has none"
        ways = f"resources.{job.name}.hardware or --hardware names another"
        return Machine(CLUSTER, _row(CLUSTER, known), f"assumed, since the recipe asks for {why}; {ways}")
    return _of_gpus(here, known) if here and job.device != "cpu" else _of_cpu(job.processes, known)


def _is_here(job: Job) -> bool:
    """Whether a training asks for a CPU, and for nothing that only a cluster gives."""
    return job.device == "cpu" and job.hardware == "CPU" and job.nodes == 1 and job.memory is None


def _of_gpus(here: Sequence[Gpu], known: Mapping[str, Hardware]) -> Machine:
    """The one with the least memory: a rank may get any of them."""
    least = min(here, key=lambda gpu: gpu.memory)
    kind = next((kind for kind in known if kind in least.name.replace("-", " ").split()), None)
    if kind is None:
        why = f"this machine's GPU, {least.name}, is not in the table ({', '.join(known)})"
        raise InputError(f"{why}; name one that is like it with --hardware, or bring a table with --table")
    hardware = known[kind].model_copy(update={"memory": least.memory / GIB, "price": 0.0})
    return Machine(kind, hardware, f"this machine's, which has {len(here)}")


def _of_cpu(processes: int, known: Mapping[str, Hardware]) -> Machine:
    """This machine's free memory in as many parts, less what each process takes for itself."""
    row, free, cores = _row("CPU", known), available_memory(), len(os.sched_getaffinity(0))
    memory = max(free / GIB / processes - row.host, row.host)
    hardware = row.model_copy(update={"memory": memory, "price": 0.0})
    has = f"{cores} core{'s' * (cores > 1)} and {free / GIB:.1f} GiB of free memory"
    return Machine("CPU", hardware, f"this machine's, which has {has}; its speed is assumed, as in the table")


def _row(kind: str, known: Mapping[str, Hardware]) -> Hardware:
    if kind not in known:
        raise InputError(f"{kind} is not in the table ({', '.join(known)}); name one of these with --hardware")
    return known[kind]
