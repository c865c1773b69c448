"""The time that a process waits for a CPU core, as the kernel counts it.

With two threads for one free core a training is not half as fast but several times slower, since each thread waits in
turn for the other (2,200 to 3,500 tokens a second with one thread, 274 to 620 with two, on one busy machine).
"""

from pathlib import Path

TASKS = Path("/proc/self/task")
ENOUGH = 10.0
"""Seconds of computing and waiting, below which there is no share."""
BUSY = 0.25
"""Share of waiting from which a warning is logged."""


class CoreWaits:
    """The time that this process's threads wait for a core, from now on.

    Args:
        tasks: folder of the kernel's counts: proc(5), /proc/pid/task/tid/schedstat, nanoseconds that a thread ran, and
            that it was runnable and waited.
    """

    def __init__(self, tasks: Path = TASKS) -> None:
        self._tasks = tasks
        self._first = self._newest = _read(tasks)

    def share(self) -> float | None:
        """Waiting as a share of runnable time; None until that is ENOUGH, and where the kernel has no counts."""
        self._newest = self._newest | _read(self._tasks)  # threads that have ended keep their last counts
        ran, waited = (
            sum(now[kind] - self._first.get(task, (0, 0))[kind] for task, now in self._newest.items())
            for kind in (0, 1)
        )
        total = ran + waited
        return waited / total if total >= ENOUGH * 1e9 else None


def _read(tasks: Path) -> dict[str, tuple[int, int]]:
    """Nanoseconds that each thread ran and waited, by thread ID."""
    times = {}
    for file in tasks.glob("*/schedstat"):
        try:
            ran, waited, _ = map(int, file.read_text().split())
        except (OSError, ValueError):  # the thread has ended
            continue
        times[file.parent.name] = ran, waited
    return times
