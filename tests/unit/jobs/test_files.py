"""Links and pipes that a rank plants in its job's folders, where the launcher reads and touches files."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from understudy.errors import UnderstudyError
from understudy.jobs import attempts
from understudy.jobs.files import append, opened, touch
from understudy.jobs.heartbeat import heartbeats, refresh, volume_time
from understudy.jobs.logs import RankLogs
from understudy.jobs.outcome import Outcome
from understudy.jobs.specification import JobSpec
from understudy.registry.curves import Tail

PLANTED = "somebody else's"


@pytest.fixture
def spec(job: JobSpec, monkeypatch: pytest.MonkeyPatch) -> JobSpec:
    """A job whose launcher's probes have a name that a rank can guess."""
    monkeypatch.setattr("socket.gethostname", lambda: "launcher")
    monkeypatch.setattr("os.getpid", lambda: 7)
    supervised = replace(job, supervised=True)
    supervised.rank_logs.mkdir(parents=True)
    (Path(supervised.folder) / "attempt.1.a").mkdir()
    return supervised


def _append_failure(spec: JobSpec) -> None:
    Outcome(1, "failed").write(spec.outcome(0))
    attempts.keep_failures(spec)


READS: dict[str, tuple[Callable[[JobSpec], Path], Callable[[JobSpec], object]]] = {
    "its log": (lambda spec: spec.log(0), lambda spec: RankLogs(spec, print).follow({}, end=True)),
    "its log's end": (lambda spec: spec.log(0), lambda spec: RankLogs(spec, print).tail(0)),
    "a heartbeat": (lambda spec: spec.heartbeat(0), lambda spec: heartbeats(Path(spec.folder), [0])),
    "an outcome": (lambda spec: spec.outcome(0), lambda spec: Outcome.read(spec.outcome(0))),
    "the curve": (lambda spec: spec.metrics, lambda spec: Tail(spec.metrics).read()),
    "failures": (lambda spec: Path(spec.folder) / "failures.jsonl", lambda spec: attempts.failures(Path(spec.folder))),
    "the number of ranks": (lambda spec: Path(spec.folder) / "attempt.1.a/world", attempts.ranks),
}
CHANGES: dict[str, tuple[Callable[[JobSpec], Path], Callable[[JobSpec], object]]] = {
    "a look": (lambda spec: Path(spec.folder) / ".see-launcher-7", lambda spec: refresh(Path(spec.folder))),
    "the clock": (lambda spec: Path(spec.folder) / ".now-launcher-7", lambda spec: volume_time(Path(spec.folder))),
    "a stop": (lambda spec: spec.stop_file, lambda spec: touch(spec.stop_file)),
    "a failure": (lambda spec: Path(spec.folder) / "failures.jsonl", _append_failure),
}


@pytest.mark.parametrize("name", READS)
def test_a_link_is_not_read(name: str, spec: JobSpec, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path_of, read = READS[name]
    (tmp_path / "secret").write_text("a password")
    path_of(spec).symlink_to(tmp_path / "secret")
    with pytest.raises(UnderstudyError, match="not followed"):
        read(spec)
    assert "a password" not in capsys.readouterr().out


@pytest.mark.parametrize("name", READS)
def test_a_pipe_is_not_waited_for(name: str, spec: JobSpec) -> None:
    path_of, read = READS[name]
    os.mkfifo(path_of(spec))
    with pytest.raises(UnderstudyError, match="not followed"):
        read(spec)


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("exists", [True, False], ids=["a file", "nothing yet"])
def test_a_link_changes_nothing_elsewhere(name: str, exists: bool, spec: JobSpec, tmp_path: Path) -> None:
    path_of, change = CHANGES[name]
    target = tmp_path / "another job's stop"
    if exists:
        target.write_text(PLANTED)
        os.utime(target, (1, 1))
    path_of(spec).symlink_to(target)
    with pytest.raises(UnderstudyError, match="not followed"):
        change(spec)
    assert target.exists() == exists
    assert not exists or (target.read_text(), target.stat().st_mtime) == (PLANTED, 1)


def test_files_are_read_touched_and_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "file"
    append(path, "one")
    append(path, "two")
    os.utime(path, (1, 1))
    assert touch(path) == path.stat().st_mtime > 1
    with opened(path) as stream:
        assert stream.read() == b"onetwo"
    with pytest.raises(FileNotFoundError):
        opened(tmp_path / "none")


WRONG = {
    "another object": '{"x": 1}',
    "a list": "[1]",
    "a text": '"s"',
    "other types": '{"exit_code": "a", "message": 5, "rank": [], "step": "s"}',
    "another kind": '{"exit_code": 1, "kind": "zz"}',
    "no step": '{"rank": 0, "attempt": "", "phase": "training", "step": 0.5, "node": "n", "at": 1}',
    "half a letter": '{"exit_code": 1, "message": "\\ud800"}',
    "no UTF-8": b'{"exit_code": 1, "message": "\xff"}',
    "endlessly deep": "[" * 200_000,
    "a number of endless length": '{"exit_code": ' + "1" * 5000 + "0.5}",
}


@pytest.mark.parametrize("content", WRONG.values(), ids=WRONG)
def test_what_says_nothing_of_a_rank_is_as_if_it_were_not_there(content: str | bytes, spec: JobSpec) -> None:
    written = content if isinstance(content, bytes) else content.encode()
    for path in (spec.outcome(0), spec.heartbeat(0), Path(spec.folder) / attempts.FAILURES):
        path.write_bytes(written)
    assert Outcome.read(spec.outcome(0)) is None
    assert heartbeats(Path(spec.folder), [0]) == {}
    assert attempts.outcomes(spec) == []
    assert attempts.failures(Path(spec.folder)) == []
    attempts.keep_failures(spec)


@pytest.mark.parametrize("name", ["attempt.x", "attempt.", "attempt.\u00b2.a", f"attempt.{'9' * 200}.a"])
def test_what_only_begins_as_an_attempt_is_none(name: str, spec: JobSpec) -> None:
    (Path(spec.folder) / name).mkdir()
    assert attempts.latest(Path(spec.folder)) == Path(spec.folder) / "attempt.1.a"
    assert attempts.number(Path(spec.folder)) == 1


def test_a_file_in_an_attempts_place_has_no_ranks_and_no_result(spec: JobSpec) -> None:
    (Path(spec.folder) / "attempt.2.a").touch()
    assert attempts.ranks(spec) == range(spec.world_size)
    assert not attempts.is_complete(spec)
