"""The hardware that a training is planned for: the named kind, or else this machine."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from understudy.errors import InputError
from understudy.host_memory import available_memory
from understudy.plan.hardware import Hardware
from understudy.plan.job import Job
from understudy.train.precision import BF16_FROM, FLOAT8_FROM

CLUSTER = "H100"
"""The hardware assumed in a cluster if the recipe does not name it."""
PART = "MIG"
"""In the name of a GPU's partition, which has a part of its speed."""
GIB = 2**30


@dataclass(frozen=True)
class Machine:
    """Hardware, and the reason for its choice."""

    kind: str
    hardware: Hardware
    reason: str = ""
    """Empty if it was named."""
    has_times: bool = True
    """Whether its speeds give times. Otherwise they only rank sets of degrees."""


@dataclass(frozen=True)
class Gpu:
    """A GPU of this machine."""

    name: str
    memory: int
    """Bytes."""
    capability: tuple[int, int]
    """CUDA's compute capability."""


def gpus() -> list[Gpu]:
    """The GPUs that torch sees."""
    import torch

    properties = [torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count())]
    return [Gpu(device.name, device.total_memory, (device.major, device.minor)) for device in properties]


def machine_for(
    job: Job, named: str | None, hardware_table: Mapping[str, Hardware], local_gpus: Sequence[Gpu]
) -> Machine:
    """The hardware that the caller or the recipe names, or else this machine.

    Without a name, a training that cannot run here is planned for a cluster's GPUs.

    Args:
        job: the training.
        named: the caller's choice, by its name in the table.
        hardware_table: the table.
        local_gpus: this machine's GPUs.

    Raises:
        InputError: the kind is not in the table, or no GPU in it supports all precisions of this machine's.
    """
    kind = named or (None if _is_here(job) else job.hardware)
    if kind:
        if kind not in hardware_table:
            raise InputError(
                f"resources.{job.resources}.hardware: {kind} is not in the table ({', '.join(hardware_table)})"
            )
        return Machine(kind, hardware_table[kind])
    if job.nodes > 1 or (job.device == "cuda" and not local_gpus):
        cause = "several nodes" if job.nodes > 1 else "GPUs, and this machine has none"
        hint = f"resources.{job.resources}.hardware or --hardware names another"
        return Machine(CLUSTER, _row(CLUSTER, hardware_table), f"assumed, since the recipe asks for {cause}; {hint}")
    return (
        _of_gpus(local_gpus, hardware_table)
        if local_gpus and job.device != "cpu"
        else _of_cpu(job.processes, hardware_table)
    )


def _is_here(job: Job) -> bool:
    """Whether a training asks for a CPU, and for nothing that needs a cluster."""
    return job.device == "cpu" and job.hardware == "CPU" and job.nodes == 1 and job.memory is None


def _of_gpus(local_gpus: Sequence[Gpu], hardware_table: Mapping[str, Hardware]) -> Machine:
    """The GPU with the least memory: a rank may get any of them."""
    least = min(local_gpus, key=lambda gpu: gpu.memory)
    kind = max((kind for kind in hardware_table if _is_named(least, kind)), key=len, default=None)
    if kind is None or (PART in least.name and PART not in kind):
        return _of_unlisted(least, len(local_gpus), hardware_table)
    hardware = hardware_table[kind].model_copy(update={"memory": least.memory / GIB, "price": 0.0})
    return Machine(kind, hardware, f"this machine's, which has {len(local_gpus)}")


def _is_named(gpu: Gpu, kind: str) -> bool:
    """Whether a GPU's name contains a row's, word for word: A100 as well as NVIDIA GeForce RTX 4090."""
    name, row = (f" {' '.join(text.replace('-', ' ').split())} " for text in (gpu.name, kind))
    return row in name


def _of_unlisted(gpu: Gpu, count: int, hardware_table: Mapping[str, Hardware]) -> Machine:
    """A GPU without a row, with speeds that only rank degrees.

    The speeds are those of the row nearest in memory, among the rows that support all of the GPU's precisions.
    """
    precisions = _precisions(gpu)
    rows = {kind: row for kind, row in hardware_table.items() if row.is_gpu and precisions <= row.tflops.keys()}
    if not rows:
        problem = f"this machine's GPU, {gpu.name}, is not in the table, nor one like it ({', '.join(hardware_table)})"
        raise InputError(f"{problem}; name another with --hardware, or pass a table with --table")
    memory = gpu.memory / GIB
    nearest = min(rows, key=lambda kind: abs(rows[kind].memory - memory))
    tflops = {precision: speed for precision, speed in rows[nearest].tflops.items() if precision in precisions}
    hardware = rows[nearest].model_copy(update={"memory": memory, "tflops": tflops, "price": 0.0})
    reason = (
        f"this machine's, which has {count}; it is not in the table, so no times are given, and degrees are ranked as "
        f"for {nearest}, the nearest in memory"
    )
    return Machine(gpu.name, hardware, reason, has_times=False)


def _precisions(gpu: Gpu) -> set[str]:
    """The precisions that a GPU supports."""
    since = {"bf16": BF16_FROM, "fp8": FLOAT8_FROM}
    return {"fp32", "fp16", *(name for name, first in since.items() if gpu.capability >= first)}


def _of_cpu(processes: int, hardware_table: Mapping[str, Hardware]) -> Machine:
    """This machine's CPU, with the free memory divided among processes, less the memory beside their tensors."""
    row, free, cores = _row("CPU", hardware_table), available_memory(), len(os.sched_getaffinity(0))
    memory = max(free / GIB / processes - row.host, row.host)
    hardware = row.model_copy(update={"memory": memory, "price": 0.0})
    has = f"{cores} core{'s' * (cores > 1)} and {free / GIB:.1f} GiB of free memory"
    return Machine("CPU", hardware, f"this machine's, which has {has}; its speed is assumed, as in the table")


def _row(kind: str, hardware_table: Mapping[str, Hardware]) -> Hardware:
    if kind not in hardware_table:
        raise InputError(f"{kind} is not in the table ({', '.join(hardware_table)}); name one of these with --hardware")
    return hardware_table[kind]
