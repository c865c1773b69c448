"""A profile of some training steps by torch.profiler: a trace, and the breakdown of a step's time.

The first steps are skipped, since they are slower. The next few are only timed, since recording slows a step down,
and a few more are recorded. The profile does not affect the training, so this module is not part of a training's
revision.
"""

import gzip
import json
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile

from understudy.agent.trace_flop import flop_of
from understudy.agent.trace_time import STEP, step_time
from understudy.errors import disk_errors
from understudy.jobs.specification import JobSpec
from understudy.store.files import write_json
from understudy.train.marks import mark
from understudy.train.precision import PRECISIONS
from understudy.train.profile import RankProfile
from understudy.train.training import Course

WARM_UP, TIMED, RECORDED = 3, 5, 5
"""Maximum numbers of steps; each is at most a third of the remaining steps."""
LONG_ENOUGH = 5.0
"""Seconds of steps after which recording ends: a trace grows with every operator and is read into memory whole."""
ALLOCATIONS = 200_000
"""Maximum number of entries in a memory snapshot."""


@dataclass(frozen=True)
class Plan:
    """Numbers of steps that are skipped, timed and recorded, in this order."""

    warm_up: int
    timed: int
    recorded: int

    @staticmethod
    def for_steps(steps: int) -> "Plan":
        """The plan for `steps` steps; with fewer than three none is recorded."""
        return Plan(*(min(limit, steps // 3) for limit in (WARM_UP, TIMED, RECORDED)))


class Recording:
    """A context manager around each step of a rank's training.

    Args:
        spec: the job; the profile is written into its logs.
        course: the training's course.
    """

    def __init__(self, spec: JobSpec, course: Course) -> None:
        self._spec, self._course, self._rank = spec, course, dist.get_rank()
        self._plan: Plan | None = None
        self._seen, self._seconds = 0, 0.0
        self._profiler: profile | None = None
        self._began, self._over = 0.0, False

    def __call__(self, step: int) -> AbstractContextManager[None]:
        """The context of a step, counted from 0. Steps are consecutive, except after a rollback by the guard."""
        plan = self._plan = self._plan or Plan.for_steps(self._course.steps - step)
        number, self._seen = self._seen - plan.warm_up, self._seen + 1
        if 0 <= number < plan.timed:
            return self._timed()
        number -= plan.timed
        if 0 <= number < plan.recorded and not self._over:
            return self._recorded(step, number, plan.recorded)
        return nullcontext()

    @contextmanager
    def _timed(self) -> Iterator[None]:
        self._finish()
        began = time.perf_counter()
        yield
        self._finish()
        self._seconds += time.perf_counter() - began

    @contextmanager
    def _recorded(self, step: int, number: int, count: int) -> Iterator[None]:
        if number == 0:
            self._start()
        self._finish()
        with mark(STEP):
            yield
        self._over = number == count - 1 or time.perf_counter() - self._began > LONG_ENOUGH
        if self._over:
            self._end(step, number + 1)

    def _start(self) -> None:
        activities = [ProfilerActivity.CPU]
        if self._on_gpu:
            activities.append(ProfilerActivity.CUDA)
            torch.cuda.memory._record_memory_history(max_entries=ALLOCATIONS)
        self._profiler = profile(activities=activities, record_shapes=True)
        self._profiler.start()
        self._began = time.perf_counter()

    def _end(self, step: int, count: int) -> None:
        """Write the results. A trace is valid only with the profile, which is written last."""
        assert self._profiler is not None
        self._profiler.stop()
        path = self._spec.trace(self._rank)
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._profiler.export_chrome_trace(str(path))
            self._profiler = None
            if self._on_gpu:
                torch.cuda.memory._dump_snapshot(str(self._spec.memory(self._rank)))  # type: ignore[no-untyped-call]
                torch.cuda.memory._record_memory_history(enabled=None)
            with gzip.open(path) as stream:
                events = json.load(stream)["traceEvents"]
        write_json(self._spec.profile_of(self._rank), self._profile(events, step, count))

    def _profile(self, events: list[dict[str, Any]], last: int, count: int) -> RankProfile:
        assert self._plan is not None
        times = step_time(events)
        targets = sum(self._course.targets(step) for step in range(last + 1 - count, last + 1))
        return RankProfile(
            rank=self._rank,
            world_size=dist.get_world_size(),
            device=torch.cuda.get_device_name(self._course.device) if self._on_gpu else "cpu",
            precision=next(name for name, dtype in PRECISIONS.items() if dtype is self._course.precision),
            first_step=last + 2 - count,
            steps=count,
            seconds=self._seconds / self._plan.timed,
            recorded_seconds=times.seconds,
            kinds=times.kinds,
            sent=times.sent,
            flop=flop_of(events) / count,
            targets=targets / count,
        )

    @property
    def _on_gpu(self) -> bool:
        return self._course.device.type == "cuda"

    def _finish(self) -> None:
        """Wait for the GPU's pending work."""
        if self._on_gpu:
            torch.cuda.synchronize(self._course.device)
