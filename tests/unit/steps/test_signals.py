import os
import signal
import time
from pathlib import Path

import pytest

from understudy.kube.settings import LAUNCHER
from understudy.launch.platform import CLUSTER
from understudy.steps import last_words, signals
from understudy.steps.signals import Evicted, connect_to_run
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


def test_a_task_that_is_killed_says_so_in_its_log_and_in_its_pods_status(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(LAUNCHER, CLUSTER)
    words = tmp_path / "termination-log"
    words.touch()
    monkeypatch.setattr(last_words, "PATH", words)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    connect_to_run(run)
    try:
        with pytest.raises(Evicted):
            signal.raise_signal(signal.SIGTERM)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert caplog.messages == [words.read_text()]
    assert "asked to end (SIGTERM)" in words.read_text()
    assert not run.stop_requested, "its job goes on for the next launcher"
