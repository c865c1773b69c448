"""A run whose pod has to go; the command itself is run by tests/pipeline, tests/faults and tests/cluster."""

from pathlib import Path
from typing import Any

import pytest

from understudy.cli.run import _close_if_stopped
from understudy.errors import STOPPED
from understudy.launch import kube, leftovers, owner
from understudy.launch.kube import Away
from understudy.registry import recorder
from understudy.store import Run

OWNER = {"kind": "Job", "name": "run-1", "uid": "uid"}


def fails(error: Exception) -> Any:
    def asked(*_: object) -> Any:
        raise error

    return asked


@pytest.mark.parametrize(
    ("own", "over", "closed"),
    [
        (lambda _: OWNER, lambda *_: "Job run-1 was deleted", True),
        (lambda _: OWNER, lambda *_: "", False),
        (lambda _: None, lambda *_: "nobody asks", False),
        (fails(Away("nobody answers")), lambda *_: "nobody asks", False),
        (lambda _: OWNER, fails(OSError("connection reset")), False),
    ],
    ids=["stopped", "evicted", "nobody's", "server away", "connection lost"],
)
def test_a_run_ends_with_its_job_and_not_with_its_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: Any, over: Any, closed: bool
) -> None:
    told: list[Run] = []
    monkeypatch.setattr(kube, "Kube", lambda: None)
    monkeypatch.setattr(owner, "owner_now", own)
    monkeypatch.setattr(leftovers, "why_over", over)
    monkeypatch.setattr(recorder, "close_ended", lambda run, uri: told.append(run))
    run = Run(tmp_path)
    _close_if_stopped(run, "http://mlflow")
    assert run.exit_code == (STOPPED if closed else None)
    assert told == ([run] if closed else [])
