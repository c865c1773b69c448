"""A run whose pod has to go; the command itself is run by tests/pipeline, tests/faults and tests/cluster."""

import ctypes
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from understudy.cli import run as command
from understudy.cli.run import _close_if_stopped, _leave
from understudy.cli.settings import Settings
from understudy.errors import STOPPED
from understudy.launch import kube, leftovers, owner
from understudy.launch.kube import Away
from understudy.recipe_file import load
from understudy.registry import recorder
from understudy.store import Run, Store

OWNER = {"kind": "Job", "name": "run-1", "uid": "uid"}


def fails(error: BaseException) -> Any:
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


@pytest.mark.parametrize("ends", [SystemExit(1), command._Gone(143)], ids=["broken pipe", "pod has to go"])
def test_only_a_pod_that_has_to_go_asks_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: SystemExit
) -> None:
    asked: list[Run] = []
    run = Run(tmp_path)
    monkeypatch.setattr(command, "_begun", lambda *_: run)
    monkeypatch.setattr(command, "_pipeline", lambda *_: nullcontext())
    monkeypatch.setattr(command, "_follow", fails(ends))
    monkeypatch.setattr(command, "_close_if_stopped", lambda run, uri: asked.append(run))
    recipe, store = load(Path("recipes/digits.yaml")), Store(tmp_path / "store")
    settings = Settings(tmp_path, None, quiet=True, verbose=False)
    with pytest.raises(SystemExit) as ended:
        command._run_here(recipe, "r", store, "http://mlflow", settings, as_json=False)
    assert ended.value is ends
    assert asked == ([run] if isinstance(ends, command._Gone) else [])


@pytest.fixture
def first_process() -> Iterator[None]:
    """Makes this process, as a pod's first one, the parent of all below it that lose theirs."""
    set_child_subreaper = 36
    prctl = ctypes.CDLL(None).prctl
    prctl(set_child_subreaper, 1)
    yield
    prctl(set_child_subreaper, 0)


def test_a_pod_that_has_to_go_waits_for_its_steps_and_no_longer(
    first_process: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A pipeline that ends at once, and its step, which gives back what it holds first."""
    del first_process
    began, given_back = tmp_path / "began", tmp_path / "given back"
    step = (
        "import pathlib, signal, sys, time\n"
        f"def leave(*_): time.sleep(0.5); pathlib.Path({str(given_back)!r}).touch(); sys.exit(0)\n"
        f"signal.signal(signal.SIGTERM, leave); pathlib.Path({str(began)!r}).touch(); time.sleep(600)"
    )
    pipeline = subprocess.Popen(
        [sys.executable, "-c", f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {step!r}]).wait()"],
        start_new_session=True,
    )
    while not began.exists():
        time.sleep(0.05)
    monkeypatch.setattr(command, "PATIENCE", 10 * command.PATIENCE)
    looks: list[float] = []
    monkeypatch.setattr(command.time, "sleep", lambda seconds: looks.append(seconds) or _sleep(seconds))
    with pytest.raises(SystemExit) as ended:
        _leave(pipeline)
    pipeline.wait()
    assert ended.value.code == 143
    assert given_back.exists()
    assert len(looks) < 10 * command.PATIENCE, "nobody is left of the group, so there is nobody to wait for"


_sleep = time.sleep
