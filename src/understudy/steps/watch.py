"""Watching a job while it runs: passing on a stop request, recording its progress, and checking the lease."""

import logging
import re
from contextlib import suppress
from pathlib import Path

from pydantic import TypeAdapter

from understudy.jobs import attempts
from understudy.jobs.files import opened, touch
from understudy.jobs.specification import JobSpec
from understudy.launch.metrics import JobMetrics, Reported
from understudy.parallel.cores import BUSY
from understudy.recipe.tasks import load
from understudy.steps.step import Work

log = logging.getLogger(__name__)

STEP = re.compile("[0-9]{1,18}")
TAIL = 4096  # bytes at the end of the metrics, enough for the last line
LINE = TypeAdapter(Reported)


class Watch:
    """While a job runs: pass on a stop request, record its progress, and end it when the lease is lost."""

    def __init__(self, work: Work, spec: JobSpec) -> None:
        self._work, self._spec = work, spec
        self._targets = load(work.recipe.task).TARGETS
        self.metrics = JobMetrics(work.run.id, work.step, work.recipe.name, self._targets)
        self._read, self._told_busy = -1, False
        folder = attempts.latest(Path(spec.folder)) or spec.work
        names = (path.name.removeprefix("step-") for path in (folder / "checkpoints").glob("step-*"))
        steps = [int(name) for name in names if STEP.fullmatch(name)]
        if steps:
            work.report_resumed(max(steps))
        work.progress(0, 0, detail=f"resuming from step {max(steps)}" if steps else "starting")

    def __call__(self) -> None:
        """Check once."""
        self._work.lease.check()
        if self._work.run.stop_requested:
            touch(self._spec.stop_file)
        size = self._spec.metrics.stat().st_size if self._spec.metrics.exists() else 0
        if size not in (0, self._read):
            self._read = size
            with suppress(ValueError):  # an incomplete line, or anything else that a rank wrote
                self._tell_step(LINE.validate_json(self._last_line(size)))

    def tell(self, text: str) -> None:
        """Record the state of a job in a cluster before and between its steps."""
        self._work.report_waiting(text)

    def _last_line(self, size: int) -> bytes:
        with opened(self._spec.metrics) as stream:
            stream.seek(max(0, size - TAIL))
            return stream.read().rstrip().rpartition(b"\n")[2]

    def _tell_step(self, entry: Reported) -> None:
        self.metrics.report(entry)
        detail = ""
        if "loss" in entry and "rate" in entry:
            detail = f"loss {entry['loss']:.4f}, {entry['rate']:,.0f} {self._targets}/s"
        self._work.progress(entry["step"], entry["steps"], entry.get("unit", "steps"), detail)
        if (waiting := entry.get("waiting")) and waiting >= BUSY and not self._told_busy:
            self._told_busy = True
            self._tell_busy(waiting)

    def _tell_busy(self, waiting: float) -> None:
        """Warn once per job that other programs use the cores."""
        threads = self._spec.threads
        fewer = f", or with fewer threads than {threads} ({self._spec.section}.threads)" if threads > 1 else ""
        words = (
            f"{self._work.step}: waited for a core {100 * waiting:.0f} % of the time in which it could have computed, "
            f"since other programs use this machine's cores; it ends sooner without them{fewer}"
        )
        log.warning("%s", words)
        self._work.run.note(words)
