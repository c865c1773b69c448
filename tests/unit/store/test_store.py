import os
import shutil
import subprocess
from pathlib import Path

import pytest

from understudy.errors import InputError, UnderstudyError
from understudy.store import Store

KEY = "cd" * 32


def make(store: Store, content: bytes, key: str = KEY) -> str:
    lease = store.acquire(key)
    assert lease is not None
    staged = lease.staging()
    try:
        (staged / "result").write_bytes(content)
        return store.conclude(lease, "step", {"seed": 1}, staged, "things", {}, {}, 2.0)
    except BaseException:
        lease.release_if_held()
        raise


def test_a_finished_step_is_found_by_its_key(store: Store) -> None:
    digest = make(store, b"x")
    cached = Store(store.folder).cached_step(KEY)
    assert cached is not None
    assert (cached.key, cached.step, cached.parts) == (KEY, "step", {"seed": 1})
    assert (cached.digest, cached.seconds) == (digest, 2.0)
    assert list(store.step_cache) == [cached]
    assert store.cached_step("ef" * 32) is None


def test_a_run_uses_the_cached_step_that_it_asked_for(store: Store) -> None:
    digest = make(store, b"x")
    run = store.create_run("digits", {}, "")
    assert store.cached_step(KEY, run) is not None
    assert run.uses == {digest}


@pytest.mark.parametrize("name", ["result", "manifest.json"])
@pytest.mark.parametrize("damage", [lambda b: bytes([b[0] ^ 1]) + b[1:], lambda b: b"", None])
def test_a_damaged_object_is_set_aside_and_made_again(store: Store, name: str, damage: object) -> None:
    digest = make(store, b"x")
    path = store.objects.path(digest) / name
    if callable(damage):
        path.write_bytes(damage(path.read_bytes()))
    else:
        path.unlink()
    run = store.create_run("digits", {}, "")
    assert store.cached_step(KEY, run) is None
    assert len(run.notes) == 1
    assert str(path) in run.notes[0]
    assert make(store, b"x") == digest
    assert store.cached_step(KEY) is not None
    assert store.objects.damage(digest, thorough=True) == []


def test_a_store_on_a_read_only_disk_can_be_looked_at_and_not_written(small_disk: Path) -> None:
    store = Store(small_disk / "store")
    digest = make(store, b"x")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    store = Store(small_disk / "store")
    assert store.objects.damage(digest, thorough=True) == store.objects.damage(digest) == []
    assert list(store.objects) == [digest]
    for write in (
        lambda: store.create_run("digits", {}, ""),
        lambda: store.acquire("ef" * 32),
        lambda: store.cached_step(KEY),
        lambda: Store(small_disk / "other"),
    ):
        with pytest.raises(InputError, match=r"cannot write here \(Read-only file system\)\. Point UNDERSTUDY_HOME"):
            write()


def test_complete_objects_stay_complete_when_the_disk_fills(small_disk: Path) -> None:
    store = Store(small_disk / "store")
    first = make(store, b"x" * 100_000)
    with pytest.raises(UnderstudyError, match=r"the disk is full\. What was complete is kept; make room"):
        fill(store)
    assert [cached.digest for cached in store.step_cache] == [first]
    assert list(store.objects) == [first]
    assert store.objects.damage(first, thorough=True) == []
    assert store.cached_step(KEY) is not None
    shutil.rmtree(store.folder / "work")
    second = make(store, b"y" * 100_000, "ef" * 32)
    assert store.objects.damage(second, thorough=True) == []


def fill(store: Store) -> None:
    """A step whose result has room and whose manifest, at last, has none."""
    lease = store.acquire("ef" * 32)
    assert lease is not None
    staged = lease.staging()
    (staged / "result").write_bytes(b"y" * 100_000)
    with (lease.folder / "checkpoint").open("wb", buffering=0) as stream:
        try:
            while stream.write(bytes(4096)):
                pass
        except OSError:
            pass
    try:
        store.conclude(lease, "step", {}, staged, "things", {}, {}, 1.0)
    finally:
        lease.release()


def test_a_disk_that_refuses_this_user_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, os.strerror(13))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(InputError, match=r"cannot write here \(Permission denied\)"):
        Store(tmp_path / "new")


def test_a_home_that_cannot_be_created_is_an_error_with_a_message() -> None:
    with pytest.raises(InputError, match="cannot be made; point UNDERSTUDY_HOME or --home elsewhere"):
        Store(Path("/proc/nothing/store"))
