"""When the steps of an optimiser ended, and their memory."""

import json
import os
import statistics
import time
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from tests.ranks.train import jobs
from understudy.jobs.specification import JobSpec

FIRST = 4
"""The steps before it are warm-up."""


class Clock:
    """The measurements after each step of an optimiser."""

    def __init__(self) -> None:
        self.moments: list[float] = []
        self.peaks: list[int] = []

    def __call__(self, *_: Any) -> None:
        """A step has ended."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
            self.peaks.append(torch.cuda.max_memory_allocated())
            torch.cuda.reset_peak_memory_stats()
        self.moments.append(time.perf_counter())

    @property
    def seconds(self) -> list[float]:
        """Of each step after the warm-up."""
        return [after - before for before, after in zip(self.moments[FIRST:], self.moments[FIRST + 1 :], strict=False)]

    @property
    def measurements(self) -> dict[str, float]:
        """Bytes at the most, and seconds of a step."""
        return {"bytes": max(self.peaks[FIRST:], default=0), "seconds": statistics.median(self.seconds)}


def alone_here() -> None:
    """Let this process be the only rank."""
    environment = {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29600",
    }
    os.environ.update(environment)


def our_training(job: JobSpec) -> dict[str, float]:
    """The time and memory of a job in this process, and its last loss."""
    clock, _ = clocked(job)
    losses = [point["loss"] for point in json.loads((job.output / "history.json").read_text())]
    return {**clock.measurements, "loss": losses[-1]}


def clocked(job: JobSpec) -> tuple[Clock, float]:
    """A job's clock, and the seconds that it took with everything before and after its steps."""
    clock, begun = Clock(), time.perf_counter()
    handle = register_optimizer_step_post_hook(clock)
    alone_here()
    jobs.train_ranks(job)
    handle.remove()
    return clock, time.perf_counter() - begun
