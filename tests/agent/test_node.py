import json
import os
import signal
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch.distributed.elastic.rendezvous.api import RendezvousParameters
from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler

from understudy.agent import node
from understudy.agent.eviction import ATTEMPT
from understudy.agent.heartbeat import HeartbeatWriter
from understudy.errors import FAILED, STOPPED, Fenced
from understudy.jobs import attempts
from understudy.jobs.heartbeat import Beat, beats
from understudy.jobs.logs import Logs
from understudy.jobs.outcome import Outcome
from understudy.jobs.specification import JobSpec


@pytest.fixture
def spec(job: JobSpec) -> JobSpec:
    return replace(job, supervised=True)


# What a pod's exit code says


@pytest.mark.parametrize(
    ("said", "reason", "code"),
    [
        (Outcome(2, "the recipe does not fit"), "", 2),
        (Outcome(FAILED, "the loss is not a number"), "", 1),
        (Outcome(FAILED, "ValueError", "raised"), "", 1),
        (Outcome(FAILED, "connection closed by peer", "lost"), "", node.LOST),
        (Outcome(STOPPED, "stopped at a checkpoint"), "preempted", node.PREEMPTED),
        (Outcome(STOPPED, "stopped, another pod had to go"), "", node.PREEMPTED),
        (Outcome(STOPPED, "nobody watches"), "abandoned", node.LEFT),
    ],
)
def test_the_exit_code_tells_what_is_worth_trying_again(
    spec: JobSpec, tmp_path: Path, said: Outcome, reason: str, code: int
) -> None:
    said.write(spec.outcome(1))
    leave = tmp_path / "leave"
    if reason:
        leave.write_text(reason)
    assert node.exit_code(spec, {1: 1}, leave) == code
    assert (code >= 128) == (code in (node.LOST, node.PREEMPTED))


def test_a_requested_stop_is_for_good(spec: JobSpec, tmp_path: Path) -> None:
    Outcome(STOPPED, "stopped").write(spec.outcome(0))
    spec.stop_file.touch()
    assert node.exit_code(spec, {0: 130}, tmp_path / "leave") == node.LEFT


def test_ranks_that_ended_well_and_nodes_that_lost_each_other(spec: JobSpec, tmp_path: Path) -> None:
    assert node.exit_code(spec, {}, tmp_path / "leave") == 0
    assert node.exit_code(spec, None, tmp_path / "leave") == node.LOST


@pytest.mark.parametrize(("reason", "code"), [("preempted", node.PREEMPTED), (node.ABANDONED, node.LEFT)])
def test_nodes_that_lost_each_other_and_had_to_go_say_why(
    spec: JobSpec, tmp_path: Path, reason: str, code: int
) -> None:
    leave = tmp_path / "leave"
    leave.write_text(reason)
    assert node.exit_code(spec, None, leave) == code


def test_a_killed_rank_is_tried_again_unless_it_was_for_memory(
    spec: JobSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = {0: -signal.SIGTERM, 1: -signal.SIGKILL}
    monkeypatch.setattr(node, "_killed_for_memory", lambda: None)
    assert node.exit_code(spec, failures, tmp_path / "leave") == node.KILLED
    spec.outcome(1).unlink()
    monkeypatch.setattr(node, "_killed_for_memory", lambda: "512 MiB")
    assert node.exit_code(spec, failures, tmp_path / "leave") == FAILED
    written = Outcome.read(spec.outcome(1))
    assert written is not None
    assert "OOMKilled" in written.message
    assert "resources.teacher.memory" in written.message


def test_the_agent_of_a_node_that_was_cut_off_has_no_word_any_more(spec: JobSpec, tmp_path: Path) -> None:
    leave = tmp_path / "leave"
    leave.with_name(ATTEMPT).write_text(attempts.begin(spec, 2))
    attempts.begin(spec, 2)
    assert node.exit_code(spec, {1: 1}, leave) == node.LOST
    assert not spec.outcome(1).exists()


# Attempts


def test_a_new_attempt_takes_the_work_of_the_one_before_and_fences_it_off(spec: JobSpec) -> None:
    first = replace(spec, attempt=attempts.begin(spec, 2))
    (first.work / "checkpoints").mkdir()
    Outcome(FAILED, "killed", "killed").write(spec.outcome(0))
    second = replace(spec, attempt=attempts.begin(spec, 2))
    assert (second.work / "checkpoints").is_dir()
    assert not first.work.exists()
    assert attempts.latest(Path(spec.folder)) == second.work
    assert [outcome.message for outcome in attempts.failures(Path(spec.folder))] == ["killed"]
    assert not spec.outcome(0).exists()


def test_a_job_that_is_over_has_no_further_attempt(spec: JobSpec, tmp_path: Path) -> None:
    with pytest.raises(Fenced):
        attempts.begin(replace(spec, folder=str(tmp_path / "gone")), 2)


def test_of_all_ranks_the_one_that_made_the_others_fail_is_kept(spec: JobSpec) -> None:
    attempts.begin(spec, 2)
    Outcome(FAILED, "connection closed by peer", "lost").write(spec.outcome(0))
    Outcome(FAILED, "rank 1 ended with signal SIGKILL", "killed").write(spec.outcome(1))
    attempts.keep_failures(spec)
    assert [outcome.kind for outcome in attempts.failures(Path(spec.folder))] == ["killed"]


def test_half_a_line_does_not_hide_the_others(spec: JobSpec) -> None:
    (Path(spec.folder) / attempts.FAILURES).write_text('{"exit_code": 1, "mess')
    attempts.begin(spec, 2)
    attempts.report_hang(spec, "no rank has moved")
    attempts.report_hang(spec, "no rank has moved, says another node")
    assert [outcome.message for outcome in attempts.failures(Path(spec.folder))] == ["no rank has moved"]


def test_a_rank_that_was_cut_off_says_nothing_any_more(spec: JobSpec) -> None:
    Path(spec.logs).mkdir()
    heartbeat = HeartbeatWriter(spec, 1)
    heartbeat.join(replace(spec, attempt=attempts.begin(spec, 2)))
    heartbeat("training", 3)
    assert beats(Path(spec.folder), [1])[1].step == 3
    attempts.begin(spec, 2)
    heartbeat("training", 4)
    assert beats(Path(spec.folder), [1]) == {}
    heartbeat.stop()


def test_attempts_are_counted_as_numbers(spec: JobSpec) -> None:
    names = [attempts.begin(spec, 2) for _ in range(11)]
    assert names[-1].startswith("attempt.11.")


# Logs


def test_lines_are_said_once_whoever_follows_and_whole(spec: JobSpec) -> None:
    Path(spec.logs).mkdir()
    said: list[str] = []
    with spec.log(1).open("w") as log:
        log.write("one\ntw")
        log.flush()
        Logs(spec, said.append).follow({1: "gpu-0"})
        log.write("o\nthree\n")
        log.flush()
        Logs(spec, said.append).follow({1: "gpu-0"})
        log.write("no end")
        log.flush()
        Logs(spec, said.append).follow({1: "gpu-0"})
    assert said == ["[gpu-0 rank 1] one", "[gpu-0 rank 1] two", "[gpu-0 rank 1] three"]
    Logs(spec, said.append).follow({1: "gpu-0"}, end=True)
    assert said[3:] == ["[gpu-0 rank 1] no end"]
    assert Logs(spec, said.append).tail(1) == ["one", "two", "three", "no end"]
    assert Logs(spec, said.append).tail(0) == []


def test_a_follower_that_has_to_go_in_the_middle_leaves_the_rest_to_the_next(spec: JobSpec) -> None:
    Path(spec.logs).mkdir()
    lines = [f"line {number} \xe9" for number in range(100)]
    spec.log(1).write_text("\n".join(lines) + "\n")
    said: list[str] = []

    def leaves(line: str) -> None:
        if len(said) == 37:
            raise SystemExit(143)
        said.append(line)

    with pytest.raises(SystemExit):
        Logs(spec, leaves).follow({1: "gpu-0"})
    Logs(spec, said.append).follow({1: "gpu-0"})
    assert said == [f"[gpu-0 rank 1] {line}" for line in lines]


# Hangs


@pytest.mark.parametrize(
    ("said", "ends"),
    [
        ([], node.HUNG),
        ([Outcome(0)], node.HUNG),
        ([Outcome(0), Outcome(0)], 0),
        ([Outcome(FAILED, "the loss is not a number")], None),
    ],
    ids=["nobody done", "one done", "all done", "one failed"],
)
def test_ranks_that_move_no_more_are_ended_unless_one_has_failed(
    spec: JobSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: list[Outcome], ends: int | None
) -> None:
    ended: list[int] = []
    monkeypatch.setattr(node, "_end", ended.append)
    monkeypatch.setattr(node, "silence", lambda *_: 2 * spec.hang_timeout)
    attempt = attempts.begin(spec, 2)
    for rank, outcome in enumerate(said):
        replace(outcome, attempt=attempt).write(spec.outcome(rank))
    node._Watch(spec, tmp_path / "leave")._look_for_a_hang()
    assert ended[:1] == ([] if ends is None else [ends])


@pytest.mark.parametrize(
    ("steps", "before", "ends"),
    [([20, 20], False, []), ([-1, -1], False, [node.LEFT]), ([20, 20], True, [node.LEFT]), ([], False, [node.LEFT])],
    ids=["all train", "all wait", "nothing since this pod began", "none has begun"],
)
def test_a_job_that_nobody_watches_ends_at_a_checkpoint_or_at_once_where_no_rank_would_take_one(
    spec: JobSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: list[int], before: bool, ends: list[int]
) -> None:
    ended: list[int] = []
    monkeypatch.setattr(node, "_end", ended.append)
    monkeypatch.setattr(node, "launcher_silence", lambda folder: spec.launcher_timeout + 1)
    watch = node._Watch(spec, tmp_path / "leave")
    for rank, step in enumerate(steps):
        beat = Beat(rank, "", "training", step, "n", 0.0)
        spec.beat(rank).write_text(json.dumps(beat.__dict__))
        if before:
            os.utime(spec.beat(rank), (0, 0))
    watch._look_for_the_launcher()
    assert ended == [], "one look may have taken as long as the volume was away"
    watch._look_for_the_launcher()
    assert ended == ends
    assert (tmp_path / "leave").read_text() == node.ABANDONED
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

    monkeypatch.setattr(node, "_end", ended.append)
    monkeypatch.setattr(node, "launcher_silence", lambda folder: spec.launcher_timeout + 1)
    monkeypatch.setattr(node._Watch, "_has_stepped", has_stepped)
    watch = node._Watch(spec, tmp_path / "leave")
    watch._look_for_the_launcher()
    with pytest.raises(OSError, match="Stale"):
        watch._look_for_the_launcher()
    watch._look_for_the_launcher()
    assert ended == [node.LEFT]


def test_a_pod_that_has_to_go_while_nobody_watches_does_not_come_again(
    spec: JobSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node._Watch, "_has_stepped", lambda _: True)
    leave = tmp_path / "leave"
    watch = node._Watch(spec, leave)
    leave.write_text(node.ABANDONED)
    watch.terminated(signal.SIGTERM, None)
    assert leave.read_text() == node.ABANDONED


# Meetings


def test_a_node_that_is_not_let_in_any_more_says_so(spec: JobSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        endpoint = f"localhost:{probe.getsockname()[1]}"
    settings = {"NNODES": "2", "RDZV_BACKEND": "c10d", "RDZV_ENDPOINT": endpoint, "RDZV_ID": "job"}
    for name, value in settings.items():
        monkeypatch.setenv(f"PET_{name}", value)
    meeting = get_rendezvous_handler(RendezvousParameters("c10d", endpoint, "job", 2, 2, is_host=True))
    meeting.shutdown()  # as the agent of a node does whose rank has failed
    assert node._failures(spec, spec.path) is None
    assert (Path(spec.folder) / node.CLOSED).exists()


@pytest.mark.parametrize(
    ("steps", "before", "ends"),
    [([-1, 20], False, [node.LOST]), ([20, 20], False, []), ([-1, 20], True, []), ([], False, [])],
    ids=["one waits", "all train", "an earlier meeting", "none has begun"],
)
def test_ranks_that_wait_in_a_closed_meeting_begin_again(
    spec: JobSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: list[int], before: bool, ends: list[int]
) -> None:
    ended: list[int] = []
    monkeypatch.setattr(node, "_end", ended.append)
    watch = node._Watch(spec, tmp_path / "leave")
    Path(spec.logs).mkdir()
    for rank, step in enumerate(steps):
        heartbeat = HeartbeatWriter(spec, rank)
        heartbeat("meeting the others" if step < 0 else "training", step)
        heartbeat.stop()
    closed = Path(spec.folder) / node.CLOSED
    closed.touch()
    if before:
        os.utime(closed, (0, 0))
    watch._look_for_a_closed_meeting()
    assert ended == ends


# Where nodes meet


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            {
                "PET_NNODES": "3:3",
                "PET_RDZV_ID": "x",
                "PET_RDZV_BACKEND": "c10d",
                "PET_RDZV_ENDPOINT": "x-worker-0:29400",
            },
            {
                "min_nodes": 3,
                "max_nodes": 3,
                "run_id": "x",
                "rdzv_backend": "c10d",
                "rdzv_endpoint": "x-worker-0:29400",
            },
        ),
        (
            {"PET_NNODES": "3", "PET_NODE_RANK": "2", "PET_MASTER_ADDR": "x-node-0", "PET_MASTER_PORT": "29500"},
            {
                "min_nodes": 3,
                "max_nodes": 3,
                "run_id": "none",
                "rdzv_backend": "static",
                "rdzv_endpoint": "x-node-0:29500",
                "rdzv_configs": {"rank": 2},
            },
        ),
    ],
)
def test_nodes_find_each_other_as_either_operator_says(given: dict[str, str], expected: dict[str, Any]) -> None:
    assert node.world(given) == expected
