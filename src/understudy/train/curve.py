"""The training curve: points are collected on the device, and summed over ranks a few at a time."""

import math
import time

import torch
import torch.distributed as dist
from torch import Tensor

from understudy.errors import UnderstudyError
from understudy.train.guard import advice
from understudy.train.training import Marks, Point, Training

REPORT_SECONDS = 0.5
CURVE_POINTS = 5000


class Recent:
    """The steps since the last report, collected on the device and summed over ranks too rarely to cost anything."""

    def __init__(self, job: Training, steps: int) -> None:
        self._job, self._interval = job, 1
        self.start(steps)

    def add(self, rate: float, loss: Tensor, norm: Tensor, mark: Marks) -> None:
        """Add a step: its learning rate, this rank's share of its loss, its gradient norm, and its marks."""
        self._rates.append(rate)
        self._marks.append(mark)
        self._losses.append(loss)
        self._norms.append(norm.detach())

    def is_due(self) -> bool:
        """Whether it is time for a report."""
        return len(self._rates) >= self._interval

    def flush(self, steps: int) -> bool:
        """Add the steps to the history, and report them. Return whether to stop, the same on every rank."""
        losses = torch.stack(self._losses).float().cpu()
        norms = torch.stack(self._norms).float().cpu()
        was_applied = torch.tensor(["skipped" not in mark for mark in self._marks])
        fits = torch.tensor(["overflow" not in mark for mark in self._marks])
        self._refuse_nan(losses.where(was_applied, 0.0), norms.where(was_applied & fits, 0.0))
        elapsed = time.perf_counter() - self._since
        # Summed over ranks: the losses are shares of one sum. Norms are the same on every rank already.
        summed = losses.double()
        dist.all_reduce(summed, group=self._job.spread.meshes.loss.get_group())
        shared = torch.tensor([elapsed, float(self._job.must_stop())], dtype=torch.double)
        dist.all_reduce(shared)
        points = [
            _point(step, loss, rate, norm, mark)
            for step, (loss, rate, norm, mark) in enumerate(
                zip(summed.tolist(), self._rates, norms.tolist(), self._marks, strict=True), self._first + 1
            )
        ]
        self._job.history += [point for point in points if self._is_kept(point)]
        if dist.get_rank() == 0:
            self._job.report(points, elapsed)
        self._job.heartbeat(steps)
        # From the mean over ranks: all must compute the same interval, or they would meet in different collectives.
        pace = shared[0].item() / dist.get_world_size() / len(points)
        self._interval = max(1, int(REPORT_SECONDS / max(pace, 1e-6)))
        self.start(steps)
        return bool(shared[1].item())

    def start(self, steps: int) -> None:
        """Continue after so many steps, with none to report."""
        self._first, self._since = steps, time.perf_counter()
        self._losses: list[Tensor] = []
        self._norms: list[Tensor] = []
        self._rates: list[float] = []
        self._marks: list[Marks] = []

    def _is_kept(self, point: Point) -> bool:
        """Limit a curve to some thousand points, besides those that were validated or marked."""
        step, steps, validation = point["step"], self._job.steps, self._job.validation
        validated = validation is not None and validation.is_due(step, steps)
        marked = "skipped" in point or "passed_over" in point or "overflow" in point
        return step % -(-steps // CURVE_POINTS) == 0 or step == steps or validated or marked

    def _refuse_nan(self, losses: Tensor, norms: Tensor) -> None:
        # Before the checkpoint that may follow this report: training would resume from one with NaN in it.
        # Every rank writes its first bad step to a separate column, which the sum preserves.
        first_bad = torch.zeros(3, dist.get_world_size(), dtype=torch.long)
        step_of_loss = self._first_bad(losses)
        infinite = step_of_loss > 0 and losses[step_of_loss - self._first - 1].item() == math.inf
        first_bad[:, dist.get_rank()] = torch.tensor([step_of_loss, self._first_bad(norms), infinite])
        dist.all_reduce(first_bad)
        by_rank = (
            first_bad[0] if first_bad[0].any() else first_bad[1]
        )  # the loss identifies the rank; its gradient is NaN on all
        if not by_rank.any():
            return
        step = int(by_rank[by_rank > 0].min())
        ranks = ", ".join(str(rank) for rank, value in enumerate(by_rank.tolist()) if value == step)
        self._job.checkpoints.finish()
        last = self._job.checkpoints.latest()
        checkpoint = f"the last good checkpoint is step {last}" if last else "there is no checkpoint yet"
        infinite = bool(first_bad[2][by_rank == step].any())
        problem = "the loss is infinite" if infinite else "the loss or its gradient is not a number any more"
        raise UnderstudyError(f"{problem} at step {step}, on rank {ranks}; {checkpoint}. {advice(infinite=infinite)}.")

    def _first_bad(self, values: Tensor) -> int:
        """The first step, counted from 1, with a value that is not finite; 0 for none."""
        is_bad = ~values.isfinite()
        return self._first + int(is_bad.float().argmax()) + 1 if is_bad.any() else 0


def _point(step: int, loss: float, rate: float, norm: float, mark: Marks) -> Point:
    point = Point(step=step, loss=_finite(loss), learning_rate=rate, grad_norm=_finite(norm))
    point.update(mark)  # type: ignore[typeddict-item]
    return point


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
