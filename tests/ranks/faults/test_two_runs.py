"""Two runs of one recipe at once, on one store and one SQLite file."""

import json
import subprocess
import time
from collections.abc import Callable

import pytest

from tests.ranks.faults import stage as stages
from tests.ranks.faults.stage import Stage, wait

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]


def both(stage: Stage) -> "tuple[subprocess.Popen[str], subprocess.Popen[str]]":
    """Two runs: the one that trains the teacher, and the one that waits for it."""
    commands = [stage.run(stages.recipe()) for _ in range(2)]
    assert wait(lambda: stage.reported() and set(stage.states("teacher").values()) == {"running", "waiting"})
    states = {pid(stage, run): state for run, state in stage.states("teacher").items()}
    by_state = {states[command.pid]: command for command in commands}
    return by_state["running"], by_state["waiting"]


def pid(stage: Stage, run: str) -> int:
    return int(json.loads((stage.store / "runs" / run / "run.json").read_text())["driver"]["pid"])


def test_the_teacher_is_trained_once_and_both_end_well(stage: Stage, undisturbed: Callable[[str], str]) -> None:
    for command in both(stage):
        code, out, error = stages.ended(command)
        assert code == 0, error
        assert "faults version 1" in out
    for step in ("teacher", "distill", "evaluate", "gate", "register"):
        assert sorted(stage.states(step).values()) == ["done", "reused"]
    assert stage.remembered("teacher") == [undisturbed("single")]
    assert not stage.left_behind()


def test_the_other_takes_over_when_the_one_that_trains_is_killed(
    stage: Stage, undisturbed: Callable[[str], str]
) -> None:
    trains, waits = both(stage)
    assert wait(stage.checkpoints)
    family, before, now = stage.family(trains.pid), max(stage.checkpoints()), time.time()
    trains.kill()
    stages.ended(trains)
    assert wait(lambda: not set(stage.processes()) & set(family), 5)
    first = stage.first_report(waits, now)
    assert first > before
    code, out, error = stages.ended(waits)
    assert code == 0, error
    assert "faults version 1" in out
    assert stage.remembered("teacher") == [undisturbed("single")]
    assert not stage.left_behind()
