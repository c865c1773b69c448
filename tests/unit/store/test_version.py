import json
import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from understudy.errors import Fenced, InputError, UnderstudyError
from understudy.store import Store, version
from understudy.store.gc import plan
from understudy.store.lease import Lease

KEYS = ("ab" * 32, "cd" * 32, "ef" * 32)


def finished(store: Store, key: str) -> str:
    lease = store.acquire(key)
    assert lease is not None
    staged = lease.staging()
    (staged / "result").write_text(key)
    return store.conclude(lease, "step", {}, staged, "things", {}, {}, 1.0)


def set_version(folder: Path, value: Any) -> None:
    (folder / "version.json").write_text(json.dumps({"version": value}))


def version_of(folder: Path) -> Any:
    return json.loads((folder / "version.json").read_text())["version"]


@pytest.fixture
def old(store: Store) -> Path:
    """A store as version 1 left it, with three finished steps, a run and half-written files."""
    for key in KEYS:
        finished(store, key)
    store.create_run("digits", {"name": "digits"}, "sqlite:///here").end(0)
    os.rename(store.folder / "step-cache", store.folder / "memo")
    (store.folder / "memo" / ".half").write_text("{")
    set_version(store.folder, 1)
    return store.folder


def content(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Every file with its bytes and time, by its place, the step cache's by its new one."""
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {
        name.replace("memo/", "step-cache/"): (path.read_bytes(), path.stat().st_mtime_ns)
        for name, path in files.items()
        if name != "version.json"
    }


def test_a_new_store_has_this_version(store: Store) -> None:
    assert version_of(store.folder) == version.VERSION == 2


def test_another_version_is_refused_with_the_way_out(store: Store) -> None:
    set_version(store.folder, 99)
    for refuse in (Store, version.migrate):
        with pytest.raises(
            InputError, match=r"has version 99, this understudy writes version 2\. Use .* --home at a new"
        ):
            refuse(store.folder)


@pytest.mark.parametrize(("damage", "folder", "right"), [("{", "memo", 1), ("[]", "memo", 1), ('{"v": 2}', "other", 2)])
def test_a_damaged_version_is_an_error_with_its_correct_value(
    store: Store, damage: str, folder: str, right: int
) -> None:
    (store.folder / folder).mkdir()
    (store.folder / "version.json").write_text(damage)
    with pytest.raises(InputError, match=rf'version\.json: damaged; .* write {{"version": {right}}} into it'):
        Store(store.folder)


def test_an_old_store_is_refused_with_the_command_and_stays_as_it_is(old: Path) -> None:
    before = content(old), sorted(os.listdir(old))
    with pytest.raises(InputError, match=r"version 1, this understudy writes version 2\. Run understudy store migrate"):
        Store(old)
    assert (content(old), sorted(os.listdir(old))) == before


def test_a_migration_keeps_everything(old: Path) -> None:
    before = content(old)
    assert version.migrate(old)
    assert content(old) == before
    assert not (old / "memo").exists()
    assert list((old / "work").iterdir()) == []
    store = Store(old)
    assert {cached.key for cached in store.step_cache} == set(KEYS)
    assert all(store.cached_step(key) for key in KEYS)
    assert [run.exit_code for run in store.runs()] == [0]
    assert plan(store, ()) == []


def test_a_second_migration_has_nothing_to_do(old: Path) -> None:
    assert version.migrate(old)
    before = content(old)
    assert not version.migrate(old)
    assert content(old) == before


def test_files_that_an_old_understudy_leaves_when_refused_do_no_harm(old: Path) -> None:
    version.migrate(old)
    (old / "memo").mkdir()  # version 1 made its folders before it looked at the version
    assert not version.migrate(old)
    assert len(list(Store(old).step_cache)) == len(KEYS)


class Killed(BaseException):
    """Stands for kill -9: nothing is cleaned up after it."""


def calls(function: str) -> Iterator[int]:
    """After how many calls of a function of the operating system to be killed."""
    return iter(range({"rename": 2, "replace": 8, "rmdir": 1}[function]))


@pytest.mark.parametrize(
    ("function", "at"), [(name, at) for name in ("rename", "replace", "rmdir") for at in calls(name)]
)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_migration_that_is_killed_anywhere_goes_on(
    old: Path, monkeypatch: pytest.MonkeyPatch, function: str, at: int, when: str
) -> None:
    before, real, finish, remaining = content(old), getattr(os, function), Lease.finish, [at]

    def kills(*arguments: Any, **named: Any) -> None:
        remaining[0] -= 1
        if remaining[0] == -1 and when == "before":
            raise Killed
        real(*arguments, **named)
        if remaining[0] == -1:
            raise Killed

    def finish_if_alive(lease: Lease) -> None:
        lease._done.set()
        if remaining[0] >= 0:
            finish(lease)

    with monkeypatch.context() as patch:
        patch.setattr(os, function, kills)
        patch.setattr(Lease, "finish", finish_if_alive)
        patch.setattr("understudy.store.lease.Process.is_gone", lambda process: False)
        with pytest.raises(Killed):
            version.migrate(old, lease_seconds=0.0)
    if version_of(old) == version.MIGRATING:
        with pytest.raises(InputError, match=r"has not finished; run understudy store migrate again"):
            Store(old)
    version.migrate(old, lease_seconds=0.0)
    assert version_of(old) == version.VERSION
    assert {name: value for name, value in content(old).items() if not name.startswith("work/")} == before
    assert {cached.key for cached in Store(old).step_cache} == set(KEYS)


def test_while_somebody_works_on_a_step_nothing_is_changed(old: Path) -> None:
    set_version(old, version.VERSION)
    lease = Store(old).acquire("12" * 32)
    assert lease is not None
    (old / "step-cache").rmdir()
    set_version(old, 1)
    before = content(old)
    with pytest.raises(UnderstudyError, match=r"process \d+ on .* runs a step in this store \(121212121212\)"):
        version.migrate(old)
    assert (content(old), version_of(old)) == (before, 1)
    lease.release()
    assert version.migrate(old)


def test_a_step_that_is_begun_while_the_store_is_closed_is_not_missed(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that had opened the store before takes a lease just after it was looked for."""
    write, leases = version._set_version, []

    def begins(*arguments: Any) -> None:
        write(*arguments)
        if not leases:
            leases.append(version.leases.acquire(old / "work", "12" * 32, 30.0))

    monkeypatch.setattr(version, "_set_version", begins)
    with pytest.raises(UnderstudyError, match="runs a step"):
        version.migrate(old)
    assert (version_of(old), len(list((old / "memo").iterdir()))) == (version.MIGRATING, len(KEYS) + 1)
    leases[0].finish()
    assert version.migrate(old)
    assert len(list(Store(old).step_cache)) == len(KEYS)


def test_who_was_frozen_and_comes_back_cannot_set_the_version(old: Path) -> None:
    lease = version.leases.acquire(old / "work", version.LEASE, 30.0)
    assert lease is not None
    lease._done.set()
    os.utime(lease.folder / f"holder.{lease.folder.name.split('.')[1]}", (0, 0))
    assert version.migrate(old)
    with pytest.raises(Fenced, match="another process migrates this store"):
        version._set_version(lease, old, version.MIGRATING)
    assert version_of(old) == version.VERSION


def test_entries_that_another_process_moves_meanwhile_are_not_missed(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.replace

    def too_late(source: Path, target: Path) -> None:
        real(source, target)
        real(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", too_late)
        version._move_entries(old / "memo", old / "step-cache")
    assert not (old / "memo").exists()
    assert len(list((old / "step-cache").iterdir())) == len(KEYS) + 1


def _migrate(folder: str, barrier: Any, answers: Any) -> None:
    barrier.wait()
    answers.put(version.migrate(Path(folder)))


def test_of_several_at_once_one_does_it_and_none_fails(old: Path) -> None:
    before = content(old)
    context = multiprocessing.get_context("fork")
    barrier, answers = context.Barrier(4), context.Queue()
    processes = [context.Process(target=_migrate, args=(str(old), barrier, answers)) for _ in range(4)]
    for process in processes:
        process.start()
    results = sorted(answers.get(timeout=60) for _ in processes)
    for process in processes:
        process.join()
    assert results == [False, False, False, True]
    assert content(old) == before
    assert len(list(Store(old).step_cache)) == len(KEYS)
