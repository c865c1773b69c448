"""The exit codes of pods."""

import signal
from dataclasses import replace
from pathlib import Path

import pytest

from understudy.agent import eviction, exit_codes
from understudy.agent.eviction import ATTEMPT
from understudy.errors import FAILED, STOPPED
from understudy.jobs import attempts
from understudy.jobs.outcome import Outcome
from understudy.jobs.specification import JobSpec


@pytest.fixture
def spec(job: JobSpec) -> JobSpec:
    return replace(job, supervised=True)


@pytest.mark.parametrize(
    ("recorded", "reason", "code"),
    [
        (Outcome(2, "the recipe does not fit"), "", 2),
        (Outcome(FAILED, "the loss is not a number"), "", 1),
        (Outcome(FAILED, "ValueError", "raised"), "", 1),
        (Outcome(FAILED, "connection closed by peer", "lost"), "", exit_codes.PEERS_LOST),
        (Outcome(STOPPED, "stopped at a checkpoint"), "evicted", exit_codes.EVICTED),
        (Outcome(STOPPED, "stopped, another pod had to go"), "", exit_codes.EVICTED),
        (Outcome(STOPPED, "nobody watches"), "abandoned", exit_codes.STOPPED_AT_CHECKPOINT),
    ],
)
def test_the_exit_code_tells_whether_another_attempt_is_worthwhile(
    spec: JobSpec, tmp_path: Path, recorded: Outcome, reason: str, code: int
) -> None:
    recorded.write(spec.outcome(1))
    leave = tmp_path / "eviction"
    if reason:
        leave.write_text(reason)
    assert exit_codes.exit_code(spec, {1: 1}, leave) == code
    assert (code >= 128) == (code in (exit_codes.PEERS_LOST, exit_codes.EVICTED))


def test_a_requested_stop_is_for_good(spec: JobSpec, tmp_path: Path) -> None:
    Outcome(STOPPED, "stopped").write(spec.outcome(0))
    spec.stop_file.touch()
    assert exit_codes.exit_code(spec, {0: 130}, tmp_path / "eviction") == exit_codes.STOPPED_AT_CHECKPOINT


def test_ranks_that_ended_well_and_nodes_that_lost_each_other(spec: JobSpec, tmp_path: Path) -> None:
    assert exit_codes.exit_code(spec, {}, tmp_path / "eviction") == 0
    assert exit_codes.exit_code(spec, None, tmp_path / "eviction") == exit_codes.PEERS_LOST


@pytest.mark.parametrize(
    ("reason", "code"), [("evicted", exit_codes.EVICTED), (eviction.ABANDONED, exit_codes.STOPPED_AT_CHECKPOINT)]
)
def test_nodes_that_lost_each_other_and_had_to_go_say_why(
    spec: JobSpec, tmp_path: Path, reason: str, code: int
) -> None:
    leave = tmp_path / "eviction"
    leave.write_text(reason)
    assert exit_codes.exit_code(spec, None, leave) == code


def test_a_killed_rank_is_tried_again_unless_it_was_for_memory(
    spec: JobSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = {0: -signal.SIGTERM, 1: -signal.SIGKILL}
    monkeypatch.setattr(exit_codes, "oom_kills", lambda: 0)
    assert exit_codes.exit_code(spec, failures, tmp_path / "eviction") == exit_codes.KILLED
    spec.outcome(1).unlink()
    monkeypatch.setattr(exit_codes, "oom_kills", lambda: 1)
    monkeypatch.setattr(exit_codes, "memory_limit", lambda: 512 * 2**20)
    assert exit_codes.exit_code(spec, failures, tmp_path / "eviction") == FAILED
    written = Outcome.read(spec.outcome(1))
    assert written is not None
    assert "(OOMKilled): its pod's limit is 512 MiB. Raise" in written.message
    assert "resources.teacher.memory" in written.message


def test_the_agent_of_a_node_that_was_cut_off_has_no_word_any_more(spec: JobSpec, tmp_path: Path) -> None:
    leave = tmp_path / "eviction"
    leave.with_name(ATTEMPT).write_text(attempts.begin(spec, 2))
    attempts.begin(spec, 2)
    assert exit_codes.exit_code(spec, {1: 1}, leave) == exit_codes.PEERS_LOST
    assert not spec.outcome(1).exists()
