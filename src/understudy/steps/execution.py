"""Executing a step once: its key, the step cache, the lease, waiting for another run, and the recorded state."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal

from understudy.errors import BAD_INPUT, FAILED, STOPPED, Stopped, UnderstudyError, disk_errors
from understudy.recipe import Recipe
from understudy.steps.signals import Evicted
from understudy.steps.step import Parts, Result, Step, Work, parts
from understudy.store import Lease, Run, StepState, Store, remote_cache
from understudy.store.files import canonical, sha256
from understudy.store.lease import Process, holder

FETCHED = "from the remote cache"


def execute(step: Step, store: Store, run: Run, inputs: Mapping[str, str], world: Mapping[str, str]) -> Result:
    """A step's result: from the step cache, computed by this process, or awaited from another run that computes it.

    Args:
        step: the step.
        store: the store of its inputs and of its result.
        run: the run that needs the result.
        inputs: digests by role.
        world: the parts of the key from outside the recipe and the store.

    Raises:
        UnderstudyError: the step failed or was stopped.
    """
    recipe = Recipe.model_validate(run.recipe, by_alias=True)
    state = StepState(step.name, "running", started=time.time())
    again = run.state(step.name) is not None
    run.record(state)
    try:
        if not again and (wrong := _wrong_input(run)):
            raise Stopped(f"{step.name}: not started: {wrong} failed, and running it again would change nothing")
        if run.stop_requested:
            raise Stopped(f"{step.name}: not started: a stop was requested; run again to resume")
        decided_by = _decided(step, recipe, store, run, inputs, world)
        state = replace(state, key=sha256(canonical(decided_by)))
        digest, how, whence = _find_or_make(step, store, run, recipe, decided_by, state)
        run.use(digest)
        if remote := remote_cache.from_environment(lambda text: _tell(run, state, text)):
            remote.send(store, state.key)
    except BaseException as error:
        kind, detail, code = _end(step.name, error)
        run.record(replace(state, state=kind, detail=detail, ended=time.time(), exit_code=code))
        raise
    latest, result = run.state(step.name) or state, result_of(step, store, digest)
    detail = "; ".join(filter(None, (whence, step.remark(result))))
    run.record(replace(latest, state=how, key=state.key, digest=digest, detail=detail, ended=time.time()))  # type: ignore[arg-type]
    return result


def _wrong_input(run: Run) -> str | None:
    """The run's step that failed because of the user's input, if any: such a run starts no further step."""
    failed = (state for state in run.states() if state.state == "failed" and state.exit_code == BAD_INPUT)
    return next((state.step for state in failed), None)


def cached(step: Step, store: Store, run: Run, inputs: Mapping[str, str], world: Mapping[str, str]) -> StepState | None:
    """The state to record for a step that is in the step cache; None if it is not. Records nothing.

    Raises:
        UnderstudyError: its key cannot be computed now.
    """
    started = time.time()
    recipe = Recipe.model_validate(run.recipe, by_alias=True)
    key = sha256(canonical(_decided(step, recipe, store, run, inputs, world)))
    digest = _cached_digest(step, store, run, key)
    if digest is None:
        return None
    remark = step.remark(result_of(step, store, digest))
    return StepState(step.name, "reused", key, digest, remark, started=started, ended=time.time())


def result_of(step: Step, store: Store, digest: str) -> Result:
    """A step's result by its object, which must be in the store."""
    manifest = store.objects.manifest(digest)
    assert manifest is not None
    return step.result(digest, store.objects.path(digest), manifest.facts, manifest.inputs)


def _decided(
    step: Step, recipe: Recipe, store: Store, run: Run, inputs: Mapping[str, str], world: Mapping[str, str]
) -> Parts:
    """The parts of the step's key, after its inputs are protected from gc and pass its check."""
    for digest in inputs.values():
        run.use(digest)
    step.check(recipe, store, inputs)
    return parts(step, recipe, store, inputs, world)


def _cached_digest(step: Step, store: Store, run: Run, key: str) -> str | None:
    entry = store.cached_step(key, run)
    return entry.digest if entry and step.still_holds(store.objects.path(entry.digest), store) else None


def _end(step: str, error: BaseException) -> tuple[Literal["stopped", "failed"], str, int]:
    """The state, reason and exit code of a step that raised an error."""
    if isinstance(error, UnderstudyError):
        return "stopped" if isinstance(error, Stopped) else "failed", str(error), error.exit_code
    if isinstance(error, Evicted):
        return "stopped", f"{step}: its process was evicted; run again to resume", STOPPED
    return "failed", f"{step}: {type(error).__name__}: {error}", FAILED


def _find_or_make(
    step: Step, store: Store, run: Run, recipe: Recipe, decided_by: Parts, state: StepState
) -> tuple[str, str, str]:
    """The result's digest, `done` or `reused`, and its origin if that is not this store."""

    def cached_digest() -> str | None:
        return _cached_digest(step, store, run, state.key)

    if digest := cached_digest():
        return digest, "reused", ""
    lease = store.acquire(state.key) or _wait(store, run, state, cached_digest)
    if lease is None:
        if (digest := cached_digest()) is None:
            raise Stopped(f"{step.name}: stopped while it waited for another run; run again to resume")
        return digest, "reused", ""
    whence = ""
    try:
        if (digest := cached_digest()) is None and _fetch(store, run, state):
            digest, whence = cached_digest(), FETCHED
    except BaseException:
        lease.release_if_held()
        raise
    if digest:
        lease.finish()
        return digest, "reused", whence
    run.record(state)
    return _make(step, store, run, recipe, decided_by, lease), "done", ""


def _fetch(store: Store, run: Run, state: StepState) -> bool:
    """Whether another store's result was fetched from the remote cache, if there is one."""
    remote = remote_cache.from_environment(lambda text: _tell(run, state, text))
    return remote is not None and remote.fetch(store, state.key)


def _tell(run: Run, state: StepState, text: str) -> None:
    run.record(replace(run.state(state.step) or state, detail=text))


def _make(step: Step, store: Store, run: Run, recipe: Recipe, decided_by: Parts, lease: Lease) -> str:
    started = time.time()
    try:
        work = Work(step.name, store, run, recipe, decided_by, lease, lease.staging())
        with disk_errors(store.folder):
            step.work(work)
        seconds = time.time() - started
        return store.conclude(lease, step.name, decided_by, work.staged, step.kind, work.inputs, work.facts, seconds)
    except BaseException:
        lease.release_if_held()
        raise


def _wait(store: Store, run: Run, state: StepState, cached_digest: Callable[[], str | None]) -> Lease | None:
    """Wait for the other run that does this work: for its result (None), or for its lease."""
    lease_holder: Process | None = holder(store.folder / "work", state.key)
    whom = f"process {lease_holder.pid} on {lease_holder.host}" if lease_holder else "another run"
    run.record(replace(state, state="waiting", detail=f"the same work is being done by {whom}"))
    return store.wait_for(state.key, lambda: run.stop_requested or cached_digest() is not None)
