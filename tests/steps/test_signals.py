import os
import signal
import time

import pytest

from understudy.steps import signals
from understudy.steps.signals import connect_to_run
from understudy.store import Run


def test_a_step_that_waits_shows_that_its_run_lives(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "HEARTBEAT_INTERVAL", 0.01)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    os.utime(run.folder / "run.json", (0, 0))
    connect_to_run(run)
    for number, handler in before.items():
        signal.signal(number, handler)
    deadline = time.monotonic() + 60
    while (run.folder / "run.json").stat().st_mtime == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert (run.folder / "run.json").stat().st_mtime > 0
