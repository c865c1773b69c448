"""When a watchdog ends its ranks."""

import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from understudy.agent import eviction, exit_codes, watchdog
from understudy.agent.heartbeat import HeartbeatWriter
from understudy.errors import FAILED
from understudy.jobs import attempts
from understudy.jobs.heartbeat import Heartbeat
from understudy.jobs.outcome import Outcome
from understudy.jobs.specification import JobSpec


@pytest.fixture
def spec(job: JobSpec) -> JobSpec:
    return replace(job, supervised=True)


@pytest.mark.parametrize(
    ("outcomes", "ends"),
    [
        ([], exit_codes.HUNG),
        ([Outcome(0)], exit_codes.HUNG),
        ([Outcome(0), Outcome(0)], 0),
        ([Outcome(FAILED, "the loss is not a number")], None),
    ],
    ids=["nobody done", "one done", "all done", "one failed"],
)
def test_ranks_that_move_no_more_are_ended_unless_one_has_failed(
    spec: JobSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcomes: list[Outcome], ends: int | None
) -> None:
    ended: list[int] = []
    monkeypatch.setattr(watchdog, "_end", ended.append)
    monkeypatch.setattr(watchdog, "seconds_since_heartbeat", lambda *_: 2 * spec.hang_timeout)
    attempt = attempts.begin(spec, 2)
    for rank, outcome in enumerate(outcomes):
        replace(outcome, attempt=attempt).write(spec.outcome(rank))
    watchdog.Watchdog(spec, tmp_path / "eviction")._check_for_hang()
    assert ended[:1] == ([] if ends is None else [ends])


@pytest.mark.parametrize(
    ("steps", "before", "ends"),
    [
        ([20, 20], False, []),
        ([-1, -1], False, [exit_codes.STOPPED_AT_CHECKPOINT]),
        ([20, 20], True, [exit_codes.STOPPED_AT_CHECKPOINT]),
        ([], False, [exit_codes.STOPPED_AT_CHECKPOINT]),
    ],
    ids=["all train", "all wait", "nothing since this pod began", "none has begun"],
)
def test_a_job_without_a_launcher_ends_at_a_checkpoint_or_at_once_before_the_first_step(
    spec: JobSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: list[int], before: bool, ends: list[int]
) -> None:
    ended: list[int] = []
    monkeypatch.setattr(watchdog, "_end", ended.append)
    monkeypatch.setattr(watchdog, "seconds_since_launcher", lambda folder: spec.launcher_timeout + 1)
    watch = watchdog.Watchdog(spec, tmp_path / "eviction")
    for rank, step in enumerate(steps):
        beat = Heartbeat(rank, "", "training", step, "n", 0.0)
        spec.heartbeat(rank).write_text(json.dumps(beat.__dict__))
        if before:
            os.utime(spec.heartbeat(rank), (0, 0))
    watch._check_launcher()
    assert ended == [], "one look may have taken as long as the volume was away"
    watch._check_launcher()
    assert ended == ends
    assert (tmp_path / "eviction").read_text() == eviction.ABANDONED
    assert spec.abandoned_file.exists(), "the launcher that comes may submit it again"


def test_ranks_that_wait_and_could_not_be_looked_after_for_a_moment_end_at_the_next_look(
    spec: JobSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, looks = list[int](), iter([OSError(116, "Stale file handle"), False])

    def has_stepped(_: object) -> bool:
        look = next(looks)
        if isinstance(look, OSError):
            raise look
        return look

    monkeypatch.setattr(watchdog, "_end", ended.append)
    monkeypatch.setattr(watchdog, "seconds_since_launcher", lambda folder: spec.launcher_timeout + 1)
    monkeypatch.setattr(watchdog.Watchdog, "_has_stepped", has_stepped)
    watch = watchdog.Watchdog(spec, tmp_path / "eviction")
    watch._check_launcher()
    with pytest.raises(OSError, match="Stale"):
        watch._check_launcher()
    watch._check_launcher()
    assert ended == [exit_codes.STOPPED_AT_CHECKPOINT]


def test_a_pod_that_has_to_go_while_nobody_watches_does_not_come_again(
    spec: JobSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog.Watchdog, "_has_stepped", lambda _: True)
    leave = tmp_path / "eviction"
    watch = watchdog.Watchdog(spec, leave)
    leave.write_text(eviction.ABANDONED)
    watch.evict(signal.SIGTERM, None)
    assert leave.read_text() == eviction.ABANDONED


@pytest.mark.parametrize(
    ("steps", "before", "ends"),
    [([-1, 20], False, [exit_codes.PEERS_LOST]), ([20, 20], False, []), ([-1, 20], True, []), ([], False, [])],
    ids=["one waits", "all train", "an earlier meeting", "none has begun"],
)
def test_ranks_that_wait_in_a_closed_rendezvous_begin_again(
    spec: JobSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: list[int], before: bool, ends: list[int]
) -> None:
    ended: list[int] = []
    monkeypatch.setattr(watchdog, "_end", ended.append)
    watch = watchdog.Watchdog(spec, tmp_path / "eviction")
    spec.rank_logs.mkdir(parents=True)
    for rank, step in enumerate(steps):
        heartbeat = HeartbeatWriter(spec, rank)
        heartbeat("joining the process group" if step < 0 else "training", step)
        heartbeat.stop()
    closed = Path(spec.folder) / watchdog.CLOSED
    closed.touch()
    if before:
        os.utime(closed, (0, 0))
    watch._check_rendezvous()
    assert ended == ends
