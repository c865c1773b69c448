import errno
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

import pytest

from understudy.errors import Fenced
from understudy.store import Lease, Store, lease, objects, step_cache
from understudy.store.lease import Process, holder, is_held

KEY = "ab" * 32
fork = multiprocessing.get_context("fork")
Child = tuple[ForkProcess, Connection]


@pytest.fixture
def start() -> Iterator[Callable[..., Child]]:
    """Start a function in a process of its own; it gets a pipe. Remaining processes are killed."""
    with ExitStack() as stack:

        def start(body: Callable[..., None], *args: Any) -> Child:
            parent_end, child_end = fork.Pipe()
            process = fork.Process(target=body, args=(child_end, *args))
            process.start()
            stack.callback(process.join)
            stack.callback(process.kill)
            return process, parent_end

        yield start


def answer(connection: Connection) -> Any:
    assert connection.poll(60)
    return connection.recv()


@contextmanager
def held_lease(store: Store) -> Iterator[Lease]:
    lease = store.acquire(KEY)
    assert lease is not None
    yield lease
    lease.finish()


def take(store: Store) -> Lease:
    lease = store.wait_for(KEY, lambda: False)
    assert lease is not None
    return lease


def conclude(store: Store, lease: Lease, content: str) -> str:
    staged = lease.staging()
    (staged / "result").write_text(content)
    return store.conclude(lease, "step", {}, staged, "things", {}, {}, 1.0)


# One at a time


def contend(pipe: Connection, folder: Path, turns: int) -> None:
    store = Store(folder)
    for _ in range(turns):
        lease = take(store)
        inside = os.open(folder / "inside", os.O_CREAT | os.O_EXCL)  # fails when somebody else is in
        with (folder / "epochs").open("a") as stream:
            stream.write(f"{lease.epoch}\n")
        os.close(inside)
        (folder / "inside").unlink()
        lease.release()
    pipe.send("done")


def test_one_of_many_processes_holds_it_at_a_time_and_epochs_rise(store: Store, start: Callable[..., Child]) -> None:
    children = [start(contend, store.folder, 8) for _ in range(6)]
    assert [answer(pipe) for _, pipe in children] == ["done"] * 6
    assert (store.folder / "epochs").read_text().split() == [str(number) for number in range(1, 49)]


def test_of_many_threads_that_start_at_once_one_gets_the_first_lease(store: Store) -> None:
    for number in range(20):
        barrier, leases = threading.Barrier(4), list[Lease | None]()

        def race(key: str, barrier: threading.Barrier = barrier, leases: list[Lease | None] = leases) -> None:
            barrier.wait()
            leases.append(store.acquire(key))

        threads = [threading.Thread(target=race, args=(f"{number:064x}",)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (winner,) = [lease for lease in leases if lease]
        winner.finish()


def test_a_held_key_is_refused_and_its_holder_named(store: Store) -> None:
    with held_lease(store) as lease:
        assert store.acquire(KEY) is None
        assert holder(store.folder / "work", KEY) == Process.current()
        assert is_held(store.folder / "work", KEY, store.lease_seconds)
        assert lease.epoch == 1
    assert holder(store.folder / "work", KEY) is None
    assert not is_held(store.folder / "work", KEY, store.lease_seconds)


def test_waiting_ends_when_the_result_is_there(store: Store) -> None:
    with held_lease(store):
        answers = iter([False, False, True])
        assert store.wait_for(KEY, lambda: next(answers)) is None


def test_a_released_step_keeps_its_work_and_loses_its_half_made_results(store: Store) -> None:
    with held_lease(store) as lease:
        (lease.folder / "checkpoints").mkdir()
        (lease.staging() / "half").touch()
        lease.release()
        again = take(store)
        assert again.epoch == 2
        assert sorted(path.name.split(".")[0] for path in again.folder.iterdir()) == ["checkpoints", "holder"]
        again.finish()


def test_finished_work_leaves_nothing(store: Store) -> None:
    lease = take(store)
    conclude(store, lease, "x")
    assert list((store.folder / "work").iterdir()) == []


# Holders that end, live on, or stop


def hold(pipe: Connection, folder: Path, seconds: float) -> None:
    lease = take(Store(folder, seconds))
    pipe.send(lease.epoch)
    pipe.recv()


def test_a_killed_holder_is_taken_over_at_once(store: Store, start: Callable[..., Child]) -> None:
    store = Store(store.folder, lease_seconds=3600)
    process, pipe = start(hold, store.folder, 3600)
    assert answer(pipe) == 1
    assert store.acquire(KEY) is None
    assert process.pid
    os.kill(process.pid, signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it is a zombie now: its parent has not asked for it
    lease = store.acquire(KEY)
    assert lease is not None
    assert lease.epoch == 2
    lease.finish()


def test_a_slow_holder_keeps_its_lease_for_many_times_its_length(store: Store, start: Callable[..., Child]) -> None:
    store = Store(store.folder, lease_seconds=1)
    _, pipe = start(hold, store.folder, 1)
    assert answer(pipe) == 1
    end = time.monotonic() + 2.5
    while time.monotonic() < end:
        assert store.acquire(KEY) is None
        time.sleep(0.1)


def test_a_process_that_got_an_old_number_is_not_its_predecessor() -> None:
    me = Process.current()
    assert not me.is_gone()
    assert Process(me.host, me.boot, me.namespace, me.pid, "1").is_gone()
    assert Process(me.host, me.boot, me.namespace, 2**22 + 1, me.started).is_gone()


def test_a_process_elsewhere_never_counts_as_ended() -> None:
    me = Process.current()
    for process in (
        ("elsewhere", me.boot, me.namespace),
        (me.host, "other", me.namespace),
        (me.host, me.boot, "pid:[1]"),
    ):
        assert not Process(*process, 2**22 + 1, "1").is_gone()


def test_a_holder_elsewhere_is_taken_over_only_when_it_stops_renewing(store: Store) -> None:
    store = Store(store.folder, lease_seconds=1)
    lease = take(store)
    beat = next(lease.folder.glob("holder.*"))
    beat.write_text(beat.read_text().replace(Process.current().host, "elsewhere"))
    assert store.acquire(KEY) is None
    lease._done.set()  # it stops renewing
    assert take(store).epoch == 2


def test_a_volume_that_is_away_for_a_moment_costs_no_lease(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(store.folder, lease_seconds=1)
    acquired = take(store)
    beat = next(acquired.folder.glob("holder.*"))
    utime, renewals = os.utime, threading.Semaphore(0)

    def away(*_: object) -> None:
        renewals.release()
        raise OSError(errno.EIO, "the volume is away")

    monkeypatch.setattr(lease.os, "utime", away)
    assert renewals.acquire(timeout=60)
    monkeypatch.setattr(lease.os, "utime", utime)
    utime(beat, (0, 0))
    while beat.stat().st_mtime == 0:
        assert acquired._thread.is_alive()
        time.sleep(0.05)
    acquired.finish()


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b'{"pid": 3}', None])
def test_a_holder_that_a_power_cut_made_unreadable_is_taken_over_in_time(store: Store, content: bytes | None) -> None:
    store = Store(store.folder, lease_seconds=1)
    lease = take(store)
    lease._done.set()
    lease._thread.join()
    beat = next(lease.folder.glob("holder.*"))
    if content is None:
        beat.unlink()
    else:
        beat.write_bytes(content)
    assert store.acquire(KEY) is None
    assert holder(store.folder / "work", KEY) is None
    assert take(store).epoch == 2


# Holders that come back late


def freeze_in(pipe: Connection, folder: Path, phase: str) -> None:
    """Take the lease, stop dead in the middle of concluding, and say what came of it."""
    store = Store(folder, lease_seconds=1)
    lease = take(store)
    staged = lease.staging()
    (staged / "result").write_text("late")

    def frozen(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            pipe.send("frozen")
            os.kill(os.getpid(), signal.SIGSTOP)
            return function(*args)

        return call

    if phase == "hashing":
        objects.hash_file = frozen(objects.hash_file)
    elif phase == "publishing":
        store.objects._move = frozen(store.objects._move)  # type: ignore[method-assign]
    elif phase == "caching":
        step_cache.write_json = frozen(step_cache.write_json)  # type: ignore[attr-defined]
    else:
        pipe.send("frozen")
        os.kill(os.getpid(), signal.SIGSTOP)
    try:
        pipe.send(store.conclude(lease, "step", {}, staged, "things", {}, {}, 1.0))
    except Fenced as error:
        pipe.send(str(error))


@pytest.mark.parametrize("ends_first", [True, False])
@pytest.mark.parametrize("phase", ["working", "hashing", "publishing", "caching"])
def test_a_frozen_holder_that_comes_back_can_no_longer_write(
    store: Store, start: Callable[..., Child], phase: str, ends_first: bool
) -> None:
    store = Store(store.folder, lease_seconds=1)
    process, pipe = start(freeze_in, store.folder, phase)
    assert answer(pipe) == "frozen"
    lease = take(store)
    assert lease.epoch == 2
    digest = conclude(store, lease, "in time") if ends_first else None
    assert process.pid
    os.kill(process.pid, signal.SIGCONT)
    assert answer(pipe) == "step: another run has taken this step over; its result counts"
    process.join()
    if digest is None:
        assert store.cached_step(KEY) is None
        digest = conclude(store, lease, "in time")
    cached = store.cached_step(KEY)
    assert cached is not None
    assert cached.digest == digest
    if phase != "caching":  # an object that nobody remembers does no harm; gc takes it
        assert list(store.objects) == [digest]


def test_a_lost_lease_refuses_everything(store: Store) -> None:
    lease = take(store)
    thief = lease.folder.with_name("2.thief")
    lease.folder.rename(thief)
    for refused in (lease.check, lease.staging, lease.release):
        with pytest.raises(Fenced, match="another run has taken this step over"):
            refused()
    lease.release_if_held()
    lease.finish()
    assert thief.is_dir()


def test_a_process_that_freezes_while_it_takes_over_holds_no_lease(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(store).release()

    def overtaken(folder: Path) -> None:
        folder.rename(folder.with_name("3.other"))
        sweep(folder)

    sweep = lease._sweep
    monkeypatch.setattr(lease, "_sweep", overtaken)
    assert store.acquire(KEY) is None
