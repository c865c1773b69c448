import os
import time
from dataclasses import asdict, replace

import pytest

from understudy.errors import UnderstudyError
from understudy.store import StepState, Store
from understudy.store.files import write_json
from understudy.store.lease import Process
from understudy.store.runs import QUIET


def test_a_run_is_found_again_with_its_arguments(store: Store) -> None:
    run = store.create_run("digits", {"name": "digits"}, "sqlite:///x")
    reopened = store.run(run.id)
    assert reopened.recipe == {"name": "digits"}
    assert (reopened.facts.name, reopened.facts.tracking_uri) == ("digits", "sqlite:///x")
    with pytest.raises(UnderstudyError, match="no such run; understudy store ls --runs lists them"):
        _ = store.run("nothing").recipe


def test_a_retried_first_step_gets_the_same_run(store: Store) -> None:
    first = store.create_run("digits", {"seed": 1}, "", "id")
    first.use("ab")
    again = store.create_run("digits", {"seed": 2}, "", "id")
    assert (again.id, again.recipe, again.uses) == ("id", {"seed": 1}, {"ab"})
    assert [run.id for run in store.runs()] == ["id"]


def test_steps_are_listed_as_they_began(store: Store) -> None:
    run = store.create_run("digits", {}, "")
    states = [StepState("prepare", "running", started=2.0), StepState("ingest", "done", "key", "digest", started=1.0)]
    for state in states:
        run.record(state)
    assert run.states() == states[::-1]
    run.record(replace(states[0], state="done", done=3, total=3, unit="images"))
    state = run.state("prepare")
    assert state is not None
    assert (state.state, state.done) == ("done", 3)
    assert run.state("gate") is None


def test_a_run_is_profiled_where_there_is_a_folder_for_it(store: Store) -> None:
    run = store.create_run("digits", {}, "")
    assert not run.is_profiled
    run.profiles.mkdir()
    assert store.run(run.id).is_profiled


def test_a_run_lives_until_it_ends(store: Store) -> None:
    run = store.create_run("digits", {}, "")
    assert run.is_live
    assert run.exit_code is None
    run.end(3)
    assert not run.is_live
    assert run.exit_code == 3


def test_a_run_whose_driver_was_killed_is_dead(store: Store) -> None:
    run = store.create_run("digits", {}, "")
    write_json(run.folder / "run.json", asdict(replace(run.facts, driver=replace(Process.current(), started="1"))))
    assert not run.is_live


def test_a_run_without_a_driver_is_dead_after_long_silence(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KFP_POD_NAME", "pod")
    run = store.create_run("digits", {}, "")
    assert run.facts.driver is None
    long_ago = time.time() - QUIET - 1
    for path in run.folder.iterdir():
        os.utime(path, (long_ago, long_ago))
    assert not run.is_live
    run.record(StepState("ingest", "running"))
    assert run.is_live
    for path in run.folder.iterdir():
        os.utime(path, (long_ago, long_ago))
    run.live()
    assert run.is_live, "a step may wait in a queue for days and change nothing"


def test_a_stop_is_seen_by_everyone_in_the_run(store: Store) -> None:
    run = store.create_run("digits", {}, "")
    assert not run.stop_requested
    run.request_stop()
    assert store.run(run.id).stop_requested


def test_whoever_takes_a_run_up_goes_through_all_of_its_steps(store: Store) -> None:
    run = store.create_run("digits", {}, "")
    run.record(StepState("teacher", "failed", detail="its pod had to go", started=1.0))
    run.end(1)
    run.take_up()
    assert run.states() == []
    assert run.is_live


@pytest.mark.parametrize(
    ("remaining", "expected"),
    [(0, ""), (40, "40 s left"), (119, "119 s left"), (150, "2 min left"), (9000, "2 h left")],
)
def test_a_state_has_its_progress_and_remaining_time(remaining: float, expected: str) -> None:
    state = StepState("teacher", "running", done=20, total=60, unit="steps", detail="loss 0.5", left=remaining)
    assert state.summary == f"20/60 steps  loss 0.5{', ' if expected else ''}{expected}"
    assert StepState("teacher", "running", left=remaining).summary == expected
