"""Fixtures for the tests of the fault table: a world with a launcher, and a check that the right rules decided."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.launch.kubernetes.fault_world import Make, World
from understudy.kube.kind import PYTORCHJOB
from understudy.launch.kubernetes import diagnosis
from understudy.launch.kubernetes.diagnosis import RULES
from understudy.launch.kubernetes.history import History
from understudy.launch.kubernetes.status import JobStatus


@pytest.fixture
def decided(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of the rules that decided anything."""
    names: set[str] = set()

    def noted(rule: diagnosis.Rule) -> diagnosis.Rule:
        def note(status: JobStatus, history: History) -> Any:
            decision = rule(status, history)
            if decision:
                names.add(rule.__name__)
            return decision

        return note

    monkeypatch.setattr(diagnosis, "RULES", tuple(noted(rule) for rule in RULES))
    return names


@pytest.fixture
def make(tmp_path: Path) -> Make:
    return lambda kind=PYTORCHJOB, **resources: World(tmp_path / "job", kind, resources)


@pytest.fixture(autouse=True)
def _rules_decide(request: pytest.FixtureRequest) -> Iterator[None]:
    """The rules that a test is marked with have to decide in it."""
    mark = request.node.get_closest_marker("rules")
    decided: set[str] = request.getfixturevalue("decided") if mark else set()
    yield
    if mark:
        assert set(mark.args) <= decided, f"decided by {sorted(decided)}"
