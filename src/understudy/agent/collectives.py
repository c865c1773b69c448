"""A rank's part of a collectives job: it times all-reduces of several sizes."""

import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from understudy.agent.surroundings import Surroundings
from understudy.errors import InputError, disk_errors
from understudy.jobs import collectives
from understudy.jobs.collectives import Collectives, Timing
from understudy.jobs.specification import JobSpec

TIMEOUT = timedelta(seconds=90)  # of one collective: a blocked route between two nodes shows as a hang
WARM_UP = 2
MOST, LEAST = 20, 3  # repeats of small buffers, and of large ones
ENOUGH = 2**28  # bytes over all repeats of a size


def measure(spec: JobSpec, payload: Collectives, surroundings: Surroundings) -> None:
    """Time this rank's part of the all-reduces of all sizes.

    Raises:
        InputError: the job needs a GPU, and there is none.
    """
    device = _device(spec)
    torch.set_num_threads(spec.threads)
    surroundings.heartbeat("joining the process group", -1)
    with _process_group():
        name: list[Any] = [surroundings.begin_attempt(dist.get_world_size()) if dist.get_rank() == 0 else ""]
        dist.broadcast_object_list(name, 0)
        folder = surroundings.join_attempt(name[0])
        timings = []
        for number, size in enumerate(payload.sizes):
            surroundings.heartbeat(f"reducing {size:,} bytes", number)
            timings.append(_timing(size, device))
        if dist.get_rank() == 0:
            output = folder / "output"
            with disk_errors(output):
                output.mkdir()
                collectives.write(output, timings)
        dist.barrier()
    surroundings.heartbeat("done", len(payload.sizes))


def _device(spec: JobSpec) -> torch.device:
    if spec.device == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise InputError("the pool has GPUs, but torch sees none in its pods: check that the trainer's image has CUDA")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    return device


@contextmanager
def _process_group() -> Iterator[None]:
    dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", timeout=TIMEOUT)
    yield
    dist.destroy_process_group()


def _timing(size: int, device: torch.device) -> Timing:
    """The median time of several all-reduces, each as long as its slowest rank took."""
    buffer = torch.ones(size // 4, dtype=torch.float32, device=device)
    repeats = max(LEAST, min(MOST, ENOUGH // size))
    seconds = [_once(buffer) for _ in range(WARM_UP + repeats)][WARM_UP:]
    slowest = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return Timing(size, statistics.median(slowest.tolist()))


def _once(buffer: torch.Tensor) -> float:
    """Seconds of one all-reduce, which all ranks begin together."""
    dist.barrier()
    start = time.perf_counter()
    dist.all_reduce(buffer, dist.ReduceOp.MAX)  # the maximum of ones: repeats leave the buffer unchanged
    if buffer.is_cuda:
        torch.cuda.synchronize(buffer.device)
    return time.perf_counter() - start
