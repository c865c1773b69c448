import errno
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from understudy.errors import Fenced, InputError, Stopped, UnderstudyError
from understudy.kube import settings
from understudy.recipe import Recipe
from understudy.steps import step as step_module
from understudy.steps.execution import cached, execute
from understudy.steps.signals import Evicted, connect_to_run
from understudy.steps.step import Result, Step, Work
from understudy.store import Run, StepState, Store
from understudy.store import store as store_module
from understudy.store.lease import is_held
from understudy.store.remote_cache import ADDRESS
from understudy.store.runs import RunFacts

pytestmark = pytest.mark.timeout(60)  # a lease that nobody gives back would be waited for


class Recorded:
    """A step whose work writes given bytes, and that counts how often it was done."""

    def __init__(self, name: str, content: bytes = b"content", **changes: Any) -> None:
        self.times = 0
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()
        self.fails: BaseException | None = None
        self._content = content
        step = Step(
            name=name,
            role="toy",
            kind="toys",
            work=self._work,
            modules=(),
            section=lambda recipe, store: {"seed": recipe.seed},
        )
        self.step = replace(step, **changes)

    def _work(self, work: Work) -> None:
        self.times += 1
        self.begun.set()
        assert self.go_on.wait(20)
        if self.fails:
            raise self.fails
        (work.staged / "toy").write_bytes(self._content)
        work.facts["size"] = len(self._content)


def new_run(store: Store, recipe: Recipe) -> Run:
    return store.create_run(recipe.name, recipe.model_dump(mode="json", by_alias=True), "")


@pytest.fixture
def run(store: Store, digits: Recipe) -> Run:
    return new_run(store, digits)


def do(toy: Recorded, store: Store, run: Run, inputs: Mapping[str, str] = {}, world: Mapping[str, str] = {}) -> Result:
    return execute(toy.step, store, run, inputs, world)


def state_of(run: Run, step: str = "toy") -> StepState:
    state = run.state(step)
    assert state is not None
    return state


def until(condition: Callable[[], Any]) -> None:
    for _ in range(2000):
        if condition():
            return
        time.sleep(0.005)
    pytest.fail("waited in vain")


class Thread(threading.Thread):
    """Runs a toy step in a thread; join() returns its result or raises its error."""

    def __init__(self, toy: Recorded, store: Store, run: Run) -> None:
        super().__init__(daemon=True)
        self._arguments = toy, store, run
        self._outcome: Result | BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._outcome = do(*self._arguments)
        except BaseException as error:
            self._outcome = error

    def result(self) -> Result:
        self.join(20)
        assert self._outcome is not None
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        return self._outcome


def test_a_result_is_an_object_with_its_facts_and_a_state(store: Store, run: Run) -> None:
    result = do(Recorded("toy"), store, run, {"other": "a" * 64})
    assert (result.path / "toy").read_bytes() == b"content"
    assert result.facts == {"size": 7}
    manifest = store.objects.manifest(result.digest)
    assert manifest is not None
    assert (manifest.kind, manifest.inputs) == ("toys", {"other": "a" * 64})
    state = state_of(run)
    assert (state.state, state.digest, state.exit_code) == ("done", result.digest, 0)
    assert state.started <= state.ended
    assert run.uses == {"a" * 64, result.digest}
    assert not list((store.folder / "work").iterdir())


def test_what_was_done_is_reused_by_every_later_run(store: Store, run: Run, digits: Recipe) -> None:
    toy = Recorded("toy")
    first = do(toy, store, run)
    second_run = new_run(store, digits)
    assert do(toy, store, second_run) == first
    assert toy.times == 1
    assert state_of(second_run).state == "reused"
    assert state_of(second_run).digest == first.digest
    assert first.digest in second_run.uses


def test_a_remark_on_a_result_is_in_its_state_made_or_reused(store: Store, run: Run, digits: Recipe) -> None:
    toy = Recorded("toy")
    toy.step = replace(toy.step, remark=lambda result: f"{result.facts['size']} bytes only")
    for _ in range(2):
        later_run = new_run(store, digits)
        do(toy, store, later_run)
        assert state_of(later_run).detail == "7 bytes only"
    found = cached(toy.step, store, run, {}, {})
    assert found is not None
    assert (found.state, found.detail) == ("reused", "7 bytes only")


def test_the_cached_step_says_what_decided_the_result(store: Store, run: Run) -> None:
    do(Recorded("toy"), store, run, {"other": "a" * 64}, {"server": "here"})
    (cached,) = store.step_cache
    assert cached.key == state_of(run).key
    assert cached.parts["step"] == "toy"
    assert cached.parts["recipe"] == {"seed": 0}
    assert cached.parts["inputs"] == {"other": "a" * 64}
    assert cached.parts["world"] == {"server": "here"}
    assert set(cached.parts["code"]) == {"source", "libraries", "python"}


def test_another_input_or_world_is_done_anew(store: Store, run: Run) -> None:
    toy = Recorded("toy")
    for inputs, world in [({}, {}), ({"other": "a" * 64}, {}), ({"other": "b" * 64}, {}), ({}, {"server": "here"})]:
        do(toy, store, run, inputs, world)
    assert toy.times == 4


def test_a_result_that_no_longer_holds_in_the_world_is_made_anew(store: Store, run: Run) -> None:
    valid = [True]
    toy = Recorded("toy", still_holds=lambda path, store: (path / "toy").exists() and valid[0])
    first = do(toy, store, run)
    do(toy, store, run)
    assert toy.times == 1
    valid[0] = False
    assert do(toy, store, run).digest == first.digest
    assert toy.times == 2
    assert state_of(run).state == "done"


def test_a_damaged_object_is_found_and_made_anew(store: Store, run: Run) -> None:
    toy = Recorded("toy")
    first = do(toy, store, run)
    (first.path / "toy").write_bytes(b"CONTENT")
    second = do(toy, store, run)
    assert second == first
    assert (second.path / "toy").read_bytes() == b"content"
    assert toy.times == 2
    assert store.objects.damage(first.digest, thorough=True) == []


def test_a_repeated_step_that_gives_the_same_again_lets_the_next_one_be_reused(store: Store, run: Run) -> None:
    """Early cutoff: later steps depend on the digest, not on how the result was computed."""
    first, second = Recorded("first"), Recorded("second")
    digest = do(second, store, run, {"first": do(first, store, run).digest}).digest
    repeated = do(first, store, run, world={"code": "changed"})
    assert first.times == 2
    assert do(second, store, run, {"first": repeated.digest}).digest == digest
    assert second.times == 1


@pytest.mark.parametrize(
    ("error", "state", "exit_code"),
    [
        (InputError("data.x: is wrong; mend it"), "failed", 2),
        (UnderstudyError("it broke; run again"), "failed", 1),
        (Stopped("stopped at step 3; run again to resume"), "stopped", 130),
    ],
)
def test_an_error_is_the_steps_state_and_nothing_is_remembered(
    store: Store, run: Run, error: UnderstudyError, state: str, exit_code: int
) -> None:
    toy = Recorded("toy")
    toy.fails = error
    with pytest.raises(type(error), match=str(error)):
        do(toy, store, run)
    recorded = state_of(run)
    assert (recorded.state, recorded.detail, recorded.exit_code, recorded.digest) == (state, str(error), exit_code, "")
    assert recorded.ended
    assert recorded.key
    assert list(store.step_cache) == []
    toy.fails = None
    do(toy, store, run)
    assert state_of(run).state == "done"


def test_a_step_whose_process_has_to_go_did_not_fail(store: Store, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(settings.LAUNCHER, "cluster")
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    connect_to_run(cast(Run, SimpleNamespace(facts=RunFacts())))
    leave = signal.getsignal(signal.SIGTERM)
    for number, handler in before.items():
        signal.signal(number, handler)
    assert callable(leave)
    with pytest.raises(Evicted) as raised:
        leave(signal.SIGTERM, None)
    toy = Recorded("toy")
    toy.fails = raised.value
    with pytest.raises(Evicted):
        do(toy, store, run)
    state = state_of(run)
    assert (state.state, state.exit_code) == ("stopped", 130)
    assert state.detail == "toy: its process was evicted; run again to resume"


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt("no"), SystemExit("no")])
def test_an_error_that_nobody_foresaw_is_named_and_goes_on(store: Store, run: Run, error: BaseException) -> None:
    toy = Recorded("toy")
    toy.fails = error
    with pytest.raises(type(error)):
        do(toy, store, run)
    state = state_of(run)
    assert (state.state, state.exit_code) == ("failed", 1)
    assert state.detail == f"toy: {type(error).__name__}: no"
    toy.fails = None
    do(toy, store, run)


def test_a_wrong_section_fails_the_step_before_any_work(store: Store, run: Run) -> None:
    def section(recipe: Recipe, store: Store) -> Mapping[str, Any]:
        raise InputError("data.source.path: is not there")

    toy = Recorded("toy", section=section)
    with pytest.raises(InputError):
        do(toy, store, run)
    assert toy.times == 0
    assert (state_of(run).state, state_of(run).exit_code) == ("failed", 2)


def test_a_step_of_a_stopped_run_is_not_started(store: Store, run: Run) -> None:
    toy = Recorded("toy")
    run.request_stop()
    with pytest.raises(Stopped, match="not started"):
        do(toy, store, run)
    assert toy.times == 0
    assert (state_of(run).state, state_of(run).exit_code) == ("stopped", 130)


def test_what_a_failed_attempt_left_in_the_work_folder_is_there_for_the_next(store: Store, run: Run) -> None:
    folders = []

    def work(work: Work) -> None:
        folders.append(sorted(path.name for path in work.lease.folder.iterdir() if path.name == "checkpoints"))
        (work.lease.folder / "checkpoints").mkdir(exist_ok=True)
        if len(folders) == 1:
            raise UnderstudyError("killed")

    step = Recorded("toy", work=work).step
    with pytest.raises(UnderstudyError):
        execute(step, store, run, {}, {})
    execute(step, store, run, {}, {})
    assert folders == [[], ["checkpoints"]]


def test_work_that_another_run_does_is_awaited_and_not_done_twice(store: Store, run: Run, digits: Recipe) -> None:
    toy, waiter = Recorded("toy"), new_run(store, digits)
    toy.go_on.clear()
    first = Thread(toy, store, run)
    assert toy.begun.wait(20)
    second = Thread(toy, store, waiter)
    until(lambda: (state := waiter.state("toy")) and state.state == "waiting")
    assert f"process {os.getpid()} on " in state_of(waiter).detail
    toy.go_on.set()
    assert second.result() == first.result()
    assert toy.times == 1
    assert (state_of(run).state, state_of(waiter).state) == ("done", "reused")
    assert not list((store.folder / "work").iterdir())


def test_work_whose_run_fails_is_taken_over_by_the_one_that_waits(store: Store, run: Run, digits: Recipe) -> None:
    toy, heir, waiter = Recorded("toy"), Recorded("toy"), new_run(store, digits)
    toy.go_on.clear()
    toy.fails = UnderstudyError("it broke")
    first = Thread(toy, store, run)
    assert toy.begun.wait(20)
    second = Thread(heir, store, waiter)
    until(lambda: (state := waiter.state("toy")) and state.state == "waiting")
    toy.go_on.set()
    with pytest.raises(UnderstudyError, match="it broke"):
        first.result()
    assert (second.result().path / "toy").exists()
    assert (state_of(run).state, state_of(waiter).state) == ("failed", "done")


def test_a_run_that_waits_can_be_stopped(store: Store, run: Run, digits: Recipe) -> None:
    toy, waiter = Recorded("toy"), new_run(store, digits)
    toy.go_on.clear()
    first = Thread(toy, store, run)
    assert toy.begun.wait(20)
    second = Thread(toy, store, waiter)
    until(lambda: (state := waiter.state("toy")) and state.state == "waiting")
    waiter.request_stop()
    with pytest.raises(Stopped, match="stopped while it waited"):
        second.result()
    toy.go_on.set()
    first.result()
    assert state_of(waiter).state == "stopped"


def test_a_remembered_result_that_no_longer_holds_does_not_end_the_waiting(
    store: Store, run: Run, digits: Recipe
) -> None:
    valid = [True]
    toy = Recorded("toy", still_holds=lambda path, store: valid[0])
    do(toy, store, run)
    valid[0] = False
    toy.go_on.clear()
    toy.begun.clear()
    first = Thread(toy, store, run)
    assert toy.begun.wait(20)
    waiter = new_run(store, digits)
    second = Thread(toy, store, waiter)
    until(lambda: (state := waiter.state("toy")) and state.state == "waiting")
    time.sleep(0.5)
    assert second.is_alive()
    valid[0] = True
    toy.go_on.set()
    assert second.result() == first.result()


def test_a_result_whose_lease_was_lost_is_refused(store: Store, run: Run) -> None:
    def work(work: Work) -> None:
        (work.staged / "toy").write_bytes(b"late")
        os.rename(work.lease.folder, work.lease.folder.with_name("2.somebody"))

    with pytest.raises(Fenced, match="another run has taken this step over"):
        execute(Recorded("toy", work=work).step, store, run, {}, {})
    assert list(store.step_cache) == []
    assert list(store.objects) == []
    assert state_of(run).state == "failed"
    (work_folder,) = (store.folder / "work").iterdir()
    assert [path.name for path in work_folder.iterdir() if path.name.startswith("2.")] == ["2.somebody"]


def test_a_disk_that_fills_up_while_the_result_is_published_gives_the_lease_back(
    monkeypatch: pytest.MonkeyPatch, store: Store, run: Run
) -> None:
    def full(self: Store, *arguments: Any) -> str:
        raise UnderstudyError(f"{self.folder}: the disk is full")

    toy = Recorded("toy")
    conclude = store_module.Store.conclude
    monkeypatch.setattr(store_module.Store, "conclude", full)
    with pytest.raises(UnderstudyError, match="the disk is full"):
        do(toy, store, run)
    monkeypatch.setattr(store_module.Store, "conclude", conclude)
    assert store.acquire(state_of(run).key) is not None


def test_a_disk_that_fills_up_during_the_work_is_named(store: Store, run: Run) -> None:
    toy = Recorded("toy")
    toy.fails = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(UnderstudyError, match=r"the disk is full.*gc shows what can go"):
        do(toy, store, run)
    assert "the disk is full" in state_of(run).detail


def test_progress_is_seen_while_the_work_goes_on(store: Store, run: Run) -> None:
    states = []

    def work(work: Work) -> None:
        work.progress(3, 10, "records", "reading")
        states.append(state_of(work.run))
        (work.staged / "toy").write_bytes(b"")

    execute(Recorded("toy", work=work).step, store, run, {}, {})
    (state,) = states
    assert (state.state, state.done, state.total, state.unit, state.detail) == ("running", 3, 10, "records", "reading")
    assert (state_of(run).state, state_of(run).done) == ("done", 3)


def test_the_same_work_published_twice_is_one_object(store: Store, run: Run) -> None:
    first = do(Recorded("one"), store, run)
    second = do(Recorded("two"), store, run)
    assert first.digest == second.digest
    assert len(list(store.objects)) == 1


def test_a_run_that_does_not_exist_is_named(store: Store) -> None:
    with pytest.raises(UnderstudyError, match="no such run; understudy store ls --runs"):
        do(Recorded("toy"), store, store.run("nobody"))


def test_a_step_uses_its_inputs_before_it_looks_for_its_result(store: Store, run: Run) -> None:
    """gc in between must find them in use, even when the step fails right after."""
    toy = Recorded("toy")
    toy.fails = UnderstudyError("no")
    with pytest.raises(UnderstudyError):
        do(toy, store, run, {"other": "a" * 64})
    assert "a" * 64 in run.uses


def test_paths_of_inputs_are_the_objects(store: Store, run: Run) -> None:
    digest = do(Recorded("one"), store, run).digest
    read = []

    def work(work: Work) -> None:
        read.append((work.input("one") / "toy").read_bytes())
        (work.staged / "toy").write_bytes(b"")

    execute(Recorded("two", work=work).step, store, run, {"one": digest}, {})
    assert read == [b"content"]
    assert isinstance(store.objects.path(digest), Path)


def test_what_another_store_has_finished_is_not_done_again_where_both_have_a_remote_cache(
    tmp_path: Path, digits: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ADDRESS, f"file://{tmp_path / 'bucket'}")
    toy, stores = Recorded("toy"), [Store(tmp_path / name) for name in ("here", "there")]
    runs = [new_run(store, digits) for store in stores]
    results = [do(toy, store, run) for store, run in zip(stores, runs, strict=True)]
    assert toy.times == 1
    states = [state_of(run) for run in runs]
    assert [(state.state, state.detail) for state in states] == [("done", ""), ("reused", "from the remote cache")]
    assert results[0].digest == results[1].digest
    assert (results[1].path / "toy").read_bytes() == b"content"


def test_what_was_finished_before_there_was_a_remote_cache_is_sent_to_it(
    tmp_path: Path, store: Store, run: Run, digits: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy, other_store = Recorded("toy"), Store(tmp_path / "there")
    do(toy, store, run)
    monkeypatch.setenv(ADDRESS, f"file://{tmp_path / 'bucket'}")
    do(toy, store, run)
    do(toy, other_store, new_run(other_store, digits))
    assert toy.times == 1


def test_a_result_of_the_remote_cache_that_no_longer_holds_is_made_anew_and_replaced(
    tmp_path: Path, digits: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ADDRESS, f"file://{tmp_path / 'bucket'}")
    valid = {"content": False, "newer": True}
    stores = [Store(tmp_path / name) for name in ("here", "there", "third")]
    old, new = (
        Recorded("toy", content.encode(), still_holds=lambda path, store: valid[(path / "toy").read_text()])
        for content in valid
    )
    do(old, stores[0], new_run(stores[0], digits))
    for store in stores[1:]:
        assert (do(new, store, new_run(store, digits)).path / "toy").read_text() == "newer"
    assert (old.times, new.times) == (1, 1)


def test_a_remote_cache_that_cannot_be_reached_fails_the_step_and_gives_its_lease_back(
    store: Store, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy = Recorded("toy")
    monkeypatch.setenv(ADDRESS, "nowhere://bucket")
    with pytest.raises(InputError, match="nowhere://bucket"):
        do(toy, store, run)
    assert (toy.times, state_of(run).state) == (0, "failed")
    monkeypatch.delenv(ADDRESS)
    do(toy, store, run)
    assert toy.times == 1


def test_a_server_that_is_away_when_a_fetched_result_is_checked_costs_no_lease(
    tmp_path: Path, digits: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ADDRESS, f"file://{tmp_path / 'bucket'}")

    def away(path: Path, store: Store) -> bool:
        raise UnderstudyError("the server is away")

    local, other_store = Store(tmp_path / "here"), Store(tmp_path / "there")
    do(Recorded("toy"), local, new_run(local, digits))
    with pytest.raises(UnderstudyError, match="the server is away"):
        do(Recorded("toy", still_holds=away), other_store, new_run(other_store, digits))
    [work] = (other_store.folder / "work").iterdir()
    assert not is_held(work.parent, work.name, 30.0)


def test_waiting_is_no_part_of_the_pace(store: Store, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, remaining = [0.0], list[float]()
    monkeypatch.setattr(
        step_module, "time", SimpleNamespace(monotonic=lambda: clock[0], time=time.time, sleep=time.sleep)
    )

    def trains(work: Work) -> None:
        def after(seconds: float, done: float) -> None:
            clock[0] += seconds
            work.progress(done, 100, "steps")
            remaining.append(state_of(run).left)

        work.progress(0, 0, detail="starting")
        after(3600.0, 10)
        after(10.0, 20)
        work.report_waiting("queued")
        assert (state_of(run).done, state_of(run).left, state_of(run).detail) == (20, 0, "queued")
        after(3600.0, 20)
        after(10.0, 30)

    execute(replace(Recorded("toy").step, work=trains), store, run, {}, {})
    assert remaining == [0, 80, 0, 70]


def test_what_inputs_show_to_be_in_vain_is_refused_although_the_result_is_remembered(store: Store, run: Run) -> None:
    assert do(Recorded("toy"), store, run)
    refused: list[Mapping[str, str]] = []

    def check(recipe: Recipe, store: Store, inputs: Mapping[str, str]) -> None:
        refused.append(inputs)
        raise InputError("data.test: too few")

    toy = Recorded("toy", check=check)
    with pytest.raises(InputError, match="too few"):
        do(toy, store, run)
    assert (toy.times, refused) == (0, [{}])
    assert (state_of(run).state, state_of(run).detail, state_of(run).exit_code) == ("failed", "data.test: too few", 2)


@pytest.mark.parametrize(("error", "begins"), [(InputError("wrong"), False), (UnderstudyError("broken"), True)])
def test_after_a_users_mistake_no_other_step_of_the_run_begins(
    store: Store, run: Run, error: UnderstudyError, begins: bool
) -> None:
    first, beside = Recorded("first"), Recorded("beside")
    first.fails = error
    with pytest.raises(type(error)):
        do(first, store, run)
    if begins:
        do(beside, store, run)
    else:
        with pytest.raises(Stopped, match="beside: not started: first failed"):
            do(beside, store, run)
        assert state_of(run, "beside").state == "stopped"
    assert beside.times == int(begins)
    first.fails = None
    for toy in (first, beside):  # whoever tries again, after a mistake that was not the recipe's, is let
        do(toy, store, run)
