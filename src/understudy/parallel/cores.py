"""How long a process has waited for a core, by the kernel's own count.

With two threads for one free core a training is not half as slow but several times: each thread waits in turn for the
other (2,200 to 3,500 tokens a second with one thread, 274 to 620 with two, on one busy machine).
"""

from pathlib import Path

TASKS = Path("/proc/self/task")
ENOUGH = 10.0
"""Seconds of computing and waiting, before which nothing is said."""
BUSY = 0.25
"""Share of waiting, from which on something is said."""


class CoreWaits:
    """The time that this process's threads wait for a core, from now on.

    Args:
        tasks: where the kernel tells it; proc(5), /proc/pid/task/tid/schedstat: nanoseconds that a thread ran, and that
            it could have run and waited.
    """

    def __init__(self, tasks: Path = TASKS) -> None:
        self._tasks = tasks
        self._first = self._newest = _read(tasks)

    def share(self) -> float | None:
        """Of the time that threads ran or could have; None until it is ENOUGH, and where the kernel does not tell."""
        self._newest = self._newest | _read(self._tasks)  # threads that have ended keep what they had
        ran, waited = (
            sum(now[kind] - self._first.get(task, (0, 0))[kind] for task, now in self._newest.items())
            for kind in (0, 1)
        )
        both = ran + waited
        return waited / both if both >= ENOUGH * 1e9 else None


def _read(tasks: Path) -> dict[str, tuple[int, int]]:
    """What each thread has run and waited, by its number."""
    found = {}
    for file in tasks.glob("*/schedstat"):
        try:
            ran, waited, _ = map(int, file.read_text().split())
        except (OSError, ValueError):  # the thread has ended
            continue
        found[file.parent.name] = ran, waited
    return found
