"""A run whose pod has to go; the command itself is run by tests/pipeline, tests/faults and tests/cluster."""

import ctypes
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests import ROOT
from understudy.cli import outcome
from understudy.cli import run as command
from understudy.cli.run import _close_if_stopped, _hand_over
from understudy.cli.settings import Settings
from understudy.errors import BAD_INPUT, REJECTED, STOPPED
from understudy.kube import api, owner, owner_state, settings
from understudy.kube.api import Unavailable
from understudy.recipe.file import read
from understudy.registry import recorder
from understudy.store import Run, StepState, Store

OWNER = {"kind": "Job", "name": "run-1", "uid": "uid"}


def fails(error: BaseException) -> Any:
    def raise_it(*_: object) -> Any:
        raise error

    return raise_it


@pytest.mark.parametrize(
    ("owner_of_pod", "over", "closed"),
    [
        (lambda _: OWNER, lambda *_: "Job run-1 was deleted", True),
        (lambda _: OWNER, lambda *_: "", False),
        (lambda _: None, lambda *_: "nobody asks", False),
        (fails(Unavailable("nobody answers")), lambda *_: "nobody asks", False),
        (lambda _: OWNER, fails(OSError("connection reset")), False),
    ],
    ids=["stopped", "evicted", "nobody's", "server away", "connection lost"],
)
def test_a_run_ends_with_its_job_and_not_with_its_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner_of_pod: Any, over: Any, closed: bool
) -> None:
    closed_runs: list[Run] = []
    monkeypatch.setattr(api, "Kube", lambda: None)
    monkeypatch.setattr(owner, "owner_now", owner_of_pod)
    monkeypatch.setattr(owner_state, "why_ended", over)
    monkeypatch.setattr(recorder, "close_ended", lambda run, uri: closed_runs.append(run))
    run = Run(tmp_path)
    _close_if_stopped(run, "http://mlflow")
    assert run.exit_code == (STOPPED if closed else None)
    assert closed_runs == ([run] if closed else [])


@pytest.mark.parametrize(
    ("options", "message"),
    [(("-n", "team"), "add --on cluster"), (("--on", "cluster", "--json"), "--json: a run in a cluster")],
)
def test_options_that_another_place_would_take_are_refused(
    understudy: Any, options: tuple[str, ...], message: str
) -> None:
    outcome = understudy("run", str(Path("recipes/digits.yaml").absolute()), *options)
    assert outcome.code == 2
    assert message in outcome.err


def test_the_old_name_of_the_remote_caches_variable_is_refused_before_anything_is_made(
    understudy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = ROOT / "recipes" / "digits.yaml"
    monkeypatch.setenv("UNDERSTUDY_RECORD", "s3://bucket/prefix")
    outcome = understudy("--home", "home", "run", str(recipe))
    assert outcome.code == 2
    assert "UNDERSTUDY_RECORD: it was renamed to UNDERSTUDY_REMOTE_CACHE" in outcome.err
    assert not Path("home").exists()


def test_a_local_registry_without_its_artifacts_is_refused_before_anything_runs(
    understudy: Any, tmp_path: Path
) -> None:
    recipe = ROOT / "recipes" / "digits.yaml"
    evidence = tmp_path / "before" / "mlartifacts" / "run" / "artifacts"
    evidence.mkdir(parents=True)
    Path("home").mkdir()
    with closing(sqlite3.connect("home/mlflow.db")) as database, database:
        database.execute("CREATE TABLE experiments (experiment_id INTEGER, artifact_location TEXT)")
        database.execute("CREATE TABLE runs (artifact_uri TEXT, status TEXT)")
        database.execute("INSERT INTO experiments VALUES (1, ?)", (evidence.parents[1].as_uri(),))
        database.execute("INSERT INTO runs VALUES (?, 'FINISHED')", (evidence.as_uri(),))
    outcome = understudy("--home", "home", "run", str(recipe))
    assert (outcome.code, outcome.out) == (2, "")
    assert f"its artifacts are still in {evidence.parents[1]}; move or copy that folder to" in outcome.err


def run_here(folder: Path, *, profile: bool = False) -> int:
    written, store = read(Path("recipes/digits.yaml")), Store(folder / "store")
    settings = Settings(folder, None, quiet=True, verbose=False)
    return command._run_here(written, store, "http://mlflow", settings, as_json=False, profile=profile)


@pytest.mark.parametrize("ends", [SystemExit(1), command._Evicted(143)], ids=["broken pipe", "pod has to go"])
def test_only_a_pod_that_has_to_go_asks_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: SystemExit
) -> None:
    queried: list[Run] = []
    run = Run(tmp_path)
    monkeypatch.setattr(command, "_begin", lambda *_: run)
    monkeypatch.setattr(command, "_is_all_there", lambda *_: False)
    monkeypatch.setattr(command, "_pipeline", lambda *_: nullcontext())
    monkeypatch.setattr(command, "_follow", fails(ends))
    monkeypatch.setattr(command, "_close_if_stopped", lambda run, uri: queried.append(run))
    with pytest.raises(SystemExit) as ended:
        run_here(tmp_path)
    assert ended.value is ends
    assert queried == ([run] if isinstance(ends, command._Evicted) else [])


@pytest.mark.parametrize("profile", [False, True])
def test_a_run_is_profiled_where_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, profile: bool
) -> None:
    """The wish for profiles is in the run's folder before its pipeline begins."""
    profiled: list[bool] = []

    def looked(*_: object) -> bool:
        profiled.append(Run(tmp_path).is_profiled)
        raise SystemExit(1)

    monkeypatch.setattr(command, "_begin", lambda *_: Run(tmp_path))
    monkeypatch.setattr(command, "_is_all_there", looked)
    with pytest.raises(SystemExit):
        run_here(tmp_path, profile=profile)
    assert profiled == [profile]


@pytest.fixture
def in_a_pod(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process is a pod's, and hears SIGTERM as before once the test is over."""
    monkeypatch.setenv(settings.LAUNCHER, "cluster")
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def sigterm_then(answer: Any) -> Any:
    def answer_after_sigterm(*_: object) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        return answer

    return answer_after_sigterm


def test_a_pod_that_has_to_go_before_its_pipeline_began_is_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_a_pod: None
) -> None:
    del in_a_pod
    monkeypatch.setattr(command, "_begin", sigterm_then(Run(tmp_path)))
    with pytest.raises(command._Evicted) as ended:
        run_here(tmp_path)
    assert ended.value.code == 143
    assert Run(tmp_path).exit_code is None


def test_a_pod_that_has_to_go_once_its_run_has_a_verdict_still_gives_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_a_pod: None
) -> None:
    del in_a_pod
    concluded: list[int] = []
    monkeypatch.setattr(command, "_begin", lambda *_: Run(tmp_path))
    monkeypatch.setattr(command, "_is_all_there", lambda *_: False)
    monkeypatch.setattr(command, "_pipeline", lambda *_: nullcontext())
    monkeypatch.setattr(command, "_follow", lambda *_: None)
    monkeypatch.setattr(command, "_exit_code", sigterm_then(REJECTED))
    monkeypatch.setattr(outcome, "conclude", lambda _run, _store, code, *_: concluded.append(code))
    monkeypatch.setattr(recorder, "close_dead", sigterm_then(None))
    assert run_here(tmp_path) == REJECTED
    assert concluded == [REJECTED]
    assert Run(tmp_path).exit_code == REJECTED


@pytest.mark.parametrize("lost", [None, OSError("stale file handle"), SystemExit(1)], ids=["", "volume", "pipe"])
def test_a_pod_that_has_to_go_says_what_its_steps_say_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_a_pod: None, lost: BaseException | None
) -> None:
    del in_a_pod
    monkeypatch.setattr(command, "_reap", lambda _: pipeline.poll())
    log_path = tmp_path / "logs" / "jobs.log"
    log_path.parent.mkdir()
    leaves = (
        f"import signal, sys, time\ndef leave(*_): open({str(log_path)!r}, 'a').write('last\\n'); sys.exit(0)\n"
        f"signal.signal(signal.SIGTERM, leave); open({str(tmp_path / 'ready')!r}, 'w'); time.sleep(600)"
    )
    printed: list[str] = []

    def shows(_: object) -> None:
        if (tmp_path / "ready").exists() and not log_path.exists():
            log_path.write_text("first\nsecond\n")

    def report(line: str) -> None:
        if not printed:
            printed.append(line)
            os.kill(os.getpid(), signal.SIGTERM)
        if lost:
            raise lost
        printed.append(line)

    pipeline = subprocess.Popen([sys.executable, "-c", leaves], start_new_session=True)
    signal.signal(signal.SIGTERM, command._evicted)
    with pytest.raises(command._Evicted):
        command._follow(Run(tmp_path), [], pipeline, cast(Any, SimpleNamespace(update=shows)), report)
    pipeline.wait()
    assert printed == (["first"] if lost else ["first", "first", "second", "last"]), "an interrupted line comes again"


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
    """A pipeline that ends at once, and its step, which releases its lease first."""
    del first_process
    began, released = tmp_path / "began", tmp_path / "given back"
    step = (
        "import pathlib, signal, sys, time\n"
        f"def leave(*_): time.sleep(0.5); pathlib.Path({str(released)!r}).touch(); sys.exit(0)\n"
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
    before = signal.getsignal(signal.SIGTERM)
    try:
        _hand_over(pipeline)
    finally:
        signal.signal(signal.SIGTERM, before)
    pipeline.wait()
    assert released.exists()
    assert len(looks) < 10 * command.PATIENCE, "nobody is left of the group, so there is nobody to wait for"


_sleep = time.sleep


def test_the_exit_code_is_that_of_the_failure_and_not_of_what_it_kept_from_beginning(tmp_path: Path) -> None:
    store = Store(tmp_path)
    run = store.create_run("x", {}, "")
    run.record(StepState("control", "stopped", exit_code=STOPPED))
    run.record(StepState("distill", "failed", exit_code=BAD_INPUT))
    assert command._exit_code(run, ["control", "distill"], store) == BAD_INPUT
