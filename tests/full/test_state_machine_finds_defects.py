"""The state machine finds defects: three, put in on purpose, are each found by it."""

from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.unit.launch.kubernetes.test_state_machine import Launchers
from understudy.errors import DONE
from understudy.jobs.outcome import Outcome
from understudy.launch.kubernetes import diagnosis
from understudy.launch.kubernetes.actions import Actions
from understudy.launch.kubernetes.decisions import Decision, Finish
from understudy.launch.kubernetes.history import History
from understudy.launch.kubernetes.rules.ending import result_complete
from understudy.launch.kubernetes.rules.ranks import no_progress
from understudy.launch.kubernetes.status import JobStatus

pytestmark = pytest.mark.full

SEARCH = settings(Launchers.TestCase.settings, max_examples=500, derandomize=True, phases=[Phase.generate])


def is_detected(words: str) -> None:
    """The state machine finds this."""
    with pytest.raises(AssertionError, match=words):
        run_state_machine_as_test(Launchers, settings=SEARCH)


def instead_of(rule: diagnosis.Rule, defective: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put another rule in the place of one."""
    monkeypatch.setattr(
        diagnosis, "RULES", tuple(defective if existing is rule else existing for existing in diagnosis.RULES)
    )


def test_a_lost_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Actions.__init__

    def unfenced(self: Actions, job: Any, kube: Any, watch: Any, say: Any) -> None:
        real(self, job, kube, lambda: None, say)

    monkeypatch.setattr(Actions, "__init__", unfenced)
    is_detected("a launcher that has lost its lease changes something|two jobs do the same work")


def test_a_verdict_from_the_operator_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def succeeded(status: JobStatus, _history: History) -> Decision | None:
        return Finish(Outcome(DONE)) if status.state.stage == "succeeded" else None

    instead_of(result_complete, succeeded, monkeypatch)
    is_detected("a success without a complete result")


def test_a_restart_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    instead_of(no_progress, lambda status, history: None, monkeypatch)
    is_detected("restarts without end")
