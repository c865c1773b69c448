"""Waiting for cores: the kernel's numbers, and a machine with more to do than it has cores."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.parallel.cores import ENOUGH, CoreWaits

SECONDS = st.integers(0, 1000).map(lambda seconds: seconds * 10**9)


def write(folder: Path, tasks: dict[int, tuple[int, int]]) -> None:
    for file in folder.glob("*/schedstat"):
        file.unlink()
    for task, (ran, waited) in tasks.items():
        (folder / str(task)).mkdir(exist_ok=True)
        (folder / str(task) / "schedstat").write_text(f"{ran} {waited} 7\n")


@given(before=st.lists(st.tuples(SECONDS, SECONDS), max_size=4), more=st.lists(st.tuples(SECONDS, SECONDS), max_size=6))
def test_it_is_the_share_since_the_start_of_all_threads_those_that_ended_too(
    before: list[tuple[int, int]], more: list[tuple[int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("task")
    write(folder, dict(enumerate(before)))
    waits = CoreWaits(folder)
    padded = [*before, *[(0, 0)] * (len(more) - len(before))]
    now = {task: (old[0] + new[0], old[1] + new[1]) for task, (old, new) in enumerate(zip(padded, more, strict=False))}
    write(folder, now)
    ran, waited = sum(new[0] for new in more), sum(new[1] for new in more)
    expected = pytest.approx(waited / (ran + waited)) if ran + waited >= ENOUGH * 1e9 else None
    assert waits.share() == expected
    write(folder, {})  # all have ended
    assert waits.share() == expected


def test_nothing_is_said_where_the_kernel_does_not_tell(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "schedstat").write_text("?\n")
    assert CoreWaits(tmp_path).share() is None
    assert CoreWaits(tmp_path / "none").share() is None


def test_it_reads_what_this_kernel_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes on one core: each waits about half of the time."""
    monkeypatch.setattr("understudy.parallel.cores.ENOUGH", 0.2)
    core, share = min(os.sched_getaffinity(0)), list[float | None]()

    def busy() -> None:
        os.sched_setaffinity(0, {core})  # of this thread
        waits, end = CoreWaits(), time.monotonic() + 1
        while time.monotonic() < end:
            pass
        share.append(waits.share())

    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
        os.sched_setaffinity(other.pid, {core})
        thread = threading.Thread(target=busy)
        thread.start()
        thread.join()
        other.kill()
    assert share[0] is not None
    assert share[0] > 0.25
