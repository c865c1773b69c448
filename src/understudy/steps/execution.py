"""Executing a step once: its key, step cache, lease, waiting for another run, and telling the run's watchers."""

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any, Literal, NoReturn

from understudy.errors import FAILED, STOPPED, Stopped, UnderstudyError, disk_errors
from understudy.launch.kubernetes.settings import in_cluster
from understudy.recipe import Recipe
from understudy.revision import revision
from understudy.store import Lease, Run, StepState, Store, remote_cache
from understudy.store.files import canonical, sha256
from understudy.store.lease import Process, holder

FETCHED = "from the remote cache"
RUN = "UNDERSTUDY_RUN"
"""The run that this process does a step of, where `understudy run` shows how far it is; KFP's tasks have none."""
LIFE = 3600.0  # seconds between two signs of life of a run, which is taken for dead after a silent day
SAY = 10.0  # seconds between two lines of a step that nobody else shows


@dataclass(frozen=True)
class Result:
    """A step's result: the object's digest, where it lies, and the small facts of its manifest."""

    digest: str
    path: Path
    facts: Mapping[str, Any]


@dataclass
class Pace:
    """How fast a step goes, measured from where it began, or was thrown back to."""

    _first: tuple[float, float] = (0.0, 0.0)
    _last: float = -1.0
    _said: tuple[float, float] = (0.0, 0.0)

    def left(self, done: float, total: float, now: float) -> float:
        """Seconds that the step goes on like this; 0 before that can be known."""
        if done < self._last or self._last < 0:
            self._first = done, now
        self._last = done
        gone = done - self._first[0]
        return max(0.0, total - done) * (now - self._first[1]) / gone if gone > 0 else 0.0

    def is_worth_a_line(self, now: float) -> bool:
        """Whether the step has moved since the last line, and that is a while ago; then it is the next one."""
        if self._last == self._said[0] or now - self._said[1] < SAY:
            return False
        self._said = self._last, now
        return True


@dataclass
class Work:
    """What a step's function gets to do its work with."""

    step: str
    store: Store
    run: Run
    recipe: Recipe
    inputs: Mapping[str, str]
    world: Mapping[str, str]
    lease: Lease
    staged: Path
    """An empty folder; its files become the object."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Small facts for the object's manifest."""
    _pace: Pace = field(default_factory=Pace)

    @property
    def tracking_uri(self) -> str:
        """The tracking server's address, which may hold credentials: from the environment, never from a file."""
        return tracking_uri(self.store)

    def input(self, role: str) -> Path:
        """The folder of an input object."""
        return self.store.objects.path(self.inputs[role])

    def stand(self, detail: str) -> None:
        """Tell them what the step waits for, or does, while it gets no further."""
        state = self.run.state(self.step)
        assert state is not None
        self._pace = Pace()
        self.run.record(replace(state, state="running", detail=detail, left=0.0))

    def progress(self, done: float, total: float, unit: str = "", detail: str = "") -> None:
        """Tell the run's watchers how far the step is."""
        state = self.run.state(self.step)
        assert state is not None
        left = self._pace.left(done, total, time.monotonic()) if total else 0.0
        state = replace(state, state="running", done=done, total=total, unit=unit, detail=detail, left=left)
        self.run.record(state)
        if left and RUN not in os.environ and self._pace.is_worth_a_line(time.monotonic()):
            print(f"{self.step}: running: {state.words}", flush=True)


@dataclass(frozen=True)
class Step:
    """A step: what decides its result, and the function that makes it."""

    name: str
    kind: str
    enters: tuple[str, ...]
    """Modules of the package whose source decides the result."""
    section: Callable[[Recipe, Store], Mapping[str, Any]]
    """What of the recipe, and of the data and models that it names, decides the result."""
    work: Callable[[Work], None]
    still_holds: Callable[[Path, Store], bool] = lambda path, store: True
    """Whether a remembered result still says the truth about the world outside the store."""


def tracking_uri(store: Store) -> str:
    """The tracking server of this environment."""
    from understudy.registry import server

    return server.tracking_uri(store.folder.parent, None)


def parts(
    step: Step, recipe: Recipe, store: Store, inputs: Mapping[str, str], world: Mapping[str, str]
) -> dict[str, Any]:
    """All that decides a step's result; the digest of this is the key under which it is remembered."""
    return {
        "step": step.name,
        "code": revision(step.enters, function=(step.work.__module__, step.work.__name__)),
        "recipe": dict(step.section(recipe, store)),
        "inputs": dict(inputs),
        "world": dict(world),
    }


def execute(step: Step, store: Store, run: Run, inputs: Mapping[str, str], world: Mapping[str, str]) -> Result:
    """A step's result: remembered, or made now by this process, or awaited from another run that makes it.

    Args:
        step: the step.
        store: holds its inputs, and its result afterwards.
        run: the run that wants the result.
        inputs: digests by role.
        world: what else decides the result and is neither in the recipe nor in the store.

    Raises:
        UnderstudyError: the step failed, or was asked to stop.
    """
    recipe = Recipe.model_validate(run.recipe, by_alias=True)
    state = StepState(step.name, "running", started=time.time())
    run.record(state)
    try:
        if run.stop_requested:
            raise Stopped(f"{step.name}: not begun, the run was asked to stop; run again to go on")
        for digest in inputs.values():
            run.use(digest)
        decided_by = parts(step, recipe, store, inputs, world)
        state = replace(state, key=sha256(canonical(decided_by)))
        digest, how, whence = _find_or_make(step, store, run, recipe, decided_by, state)
        run.use(digest)
        if remote := remote_cache.of_environment(lambda text: _tell(run, state, text)):
            remote.send(store, state.key)
    except BaseException as error:
        kind, detail, code = _end(step.name, error)
        run.record(replace(state, state=kind, detail=detail, ended=time.time(), exit_code=code))
        raise
    latest = run.state(step.name) or state
    run.record(replace(latest, state=how, key=state.key, digest=digest, detail=whence, ended=time.time()))  # type: ignore[arg-type]
    manifest = store.objects.manifest(digest)
    assert manifest is not None
    return Result(digest, store.objects.path(digest), manifest.facts)


def _end(step: str, error: BaseException) -> tuple[Literal["stopped", "failed"], str, int]:
    """What became of a step that did not get to its end: its state, the reason, the exit code."""
    if isinstance(error, UnderstudyError):
        return "stopped" if isinstance(error, Stopped) else "failed", str(error), error.exit_code
    if isinstance(error, Left):
        return "stopped", f"{step}: its process had to go; run again to go on", STOPPED
    return "failed", f"{step}: {type(error).__name__}: {error}", FAILED


def _find_or_make(
    step: Step, store: Store, run: Run, recipe: Recipe, decided_by: Mapping[str, Any], state: StepState
) -> tuple[str, str, str]:
    """The result's digest, `done` or `reused`, and where it came from when that is not this store."""

    def remembered() -> str | None:
        cached = store.cached_step(state.key, run)
        return cached.digest if cached and step.still_holds(store.objects.path(cached.digest), store) else None

    if digest := remembered():
        return digest, "reused", ""
    lease = store.acquire(state.key) or _wait(store, run, state, remembered)
    if lease is None:
        if (digest := remembered()) is None:
            raise Stopped(f"{step.name}: stopped while it waited for another run; run again to go on")
        return digest, "reused", ""
    whence = ""
    try:
        if (digest := remembered()) is None and _fetched(store, run, state):
            digest, whence = remembered(), FETCHED
    except BaseException:
        lease.release_if_held()
        raise
    if digest:
        lease.finish()
        return digest, "reused", whence
    run.record(state)
    return _make(step, store, run, recipe, decided_by, lease), "done", ""


def _fetched(store: Store, run: Run, state: StepState) -> bool:
    """Whether another store's result is here now, from the remote cache, if there is one."""
    remote = remote_cache.of_environment(lambda text: _tell(run, state, text))
    return remote is not None and remote.fetch(store, state.key)


def _tell(run: Run, state: StepState, text: str) -> None:
    run.record(replace(run.state(state.step) or state, detail=text))


def _make(step: Step, store: Store, run: Run, recipe: Recipe, decided_by: Mapping[str, Any], lease: Lease) -> str:
    started = time.time()
    try:
        work = Work(step.name, store, run, recipe, decided_by["inputs"], decided_by["world"], lease, lease.staging())
        with disk_errors(store.folder):
            step.work(work)
        seconds = time.time() - started
        return store.conclude(lease, step.name, decided_by, work.staged, step.kind, work.inputs, work.facts, seconds)
    except BaseException:
        lease.release_if_held()
        raise


def _wait(store: Store, run: Run, state: StepState, remembered: Callable[[], str | None]) -> Lease | None:
    """Wait for the run that does this work: for its result, or for its end."""
    other: Process | None = holder(store.folder / "work", state.key)
    whom = f"process {other.pid} on {other.host}" if other else "another run"
    run.record(replace(state, state="waiting", detail=f"the same work is being done by {whom}"))
    return store.wait_for(state.key, lambda: run.stop_requested or remembered() is not None)


def watch_over(run: Run) -> None:
    """Let this process follow its run's fate: end with the run's driver, and stop at a checkpoint on SIGTERM."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave if in_cluster() else lambda *_: run.request_stop())
    threading.Thread(target=_show_life, args=(run,), name="life", daemon=True).start()
    driver = run.facts.get("driver")
    if driver:
        threading.Thread(target=_end_with, args=(Process(**driver),), name="driver", daemon=True).start()


class Left(SystemExit):
    """A step's process had to go: the step is neither done nor failed."""


def _leave(_signal: int, _frame: FrameType | None) -> NoReturn:
    """This pod has to go: what it holds is given back, and its job goes on for whoever comes next."""
    raise Left(STOPPED)


def _show_life(run: Run) -> None:
    """A step may wait for days, in a queue say, and change nothing in its run."""
    never = threading.Event()
    while not never.wait(LIFE):
        run.live()


def _end_with(driver: Process) -> None:
    while not driver.is_gone():
        time.sleep(0.25)
    os._exit(STOPPED)
