"""Progress reports of a training, for monitoring."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from understudy.data.loader import Examples, Order
from understudy.parallel.cores import CoreWaits
from understudy.train.training import Point


@dataclass(frozen=True)
class Report:
    """The progress of a training at one time."""

    step: int
    loss: float
    learning_rate: float
    grad_norm: float
    steps: int
    """All steps of the training."""
    rate: float
    """Targets (images, tokens) a second, over all ranks."""
    memory: int
    """Bytes: the GPU's peak, or the resident set of the first rank's process."""
    time: float
    """Unix seconds."""
    waiting: float | None
    """Share of runnable time that the first rank's threads waited for a core, see cores.py."""


class Reporter:
    """Builds reports from the points of the curve."""

    def __init__(
        self, examples: Examples, order: Order, steps: int, device: torch.device, report: Callable[[Report], None]
    ) -> None:
        self._examples, self._order, self._steps, self._device = examples, order, steps, device
        self._report, self._waits = report, CoreWaits()

    def __call__(self, points: list[Point], seconds: float) -> None:
        """Report the last point that was not skipped; all of them took so many seconds."""
        targets = sum(self._examples.targets(self._order.batch(point["step"] - 1)) for point in points)
        last = next((point for point in reversed(points) if not {"skipped", "overflow"} & point.keys()), None)
        if last is None:
            return
        loss, norm = last["loss"], last["grad_norm"]
        assert loss is not None
        assert norm is not None
        self._report(
            Report(
                step=last["step"],
                loss=loss,
                learning_rate=last["learning_rate"],
                grad_norm=norm,
                steps=self._steps,
                rate=targets / seconds,
                memory=self._memory(),
                time=time.time(),
                waiting=self._waits.share(),
            )
        )

    def _memory(self) -> int:
        """Bytes: the GPU's peak, or the process's resident set."""
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device)
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
