import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from understudy.errors import InputError, UnderstudyError
from understudy.store import Store
from understudy.store.backup import back_up, restore
from understudy.store.files import sha256
from understudy.store.vault import Vault


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    return Vault(f"file://{tmp_path / 'vault'}")


def step(store: Store, content: str, **inputs: str) -> str:
    """A finished step's object."""
    lease = store.acquire(sha256(content.encode()))
    assert lease is not None
    staged = lease.staging()
    (staged / "code").mkdir()
    (staged / "code" / "result.txt").write_text(content)
    return store.conclude(lease, "ingest", {}, staged, "records", inputs, {"rows": 3}, 2.0)


def silent(line: str) -> None:
    raise AssertionError(line)


def test_a_restored_store_has_every_step_run_and_object(store: Store, vault: Vault, tmp_path: Path) -> None:
    first = step(store, "x")
    second = step(store, "y", records=first)
    run = store.create_run("digits", {"name": "digits"}, "sqlite:///x")
    run.end(0)
    store.remember_server("http://mlflow:5000", [first])
    snapshot = back_up(store, vault, silent)
    shutil.rmtree(store.folder)
    restore(vault, snapshot, store.folder)
    restored = Store(store.folder)
    assert [
        cached.digest for cached in restored.step_cache if not restored.objects.damage(cached.digest, thorough=True)
    ]
    assert {restored.cached_step(sha256(content)).digest for content in (b"x", b"y")} == {first, second}  # type: ignore[union-attr]
    assert [(it.id, it.exit_code, it.recipe) for it in restored.runs()] == [(run.id, 0, {"name": "digits"})]
    assert list(restored.servers) == ["http://mlflow:5000"]
    assert list(restored.registered) == [first]
    assert not list(store.folder.glob("restoring*"))


def test_a_second_backup_sends_only_new_objects(store: Store, vault: Vault) -> None:
    step(store, "x" * 1000)
    back_up(store, vault, silent)
    step(store, "y" * 1000)
    before = vault.sent
    back_up(store, vault, silent)
    assert 1000 < vault.sent - before < 2000


def test_a_damaged_object_and_work_in_progress_are_left_out(store: Store, vault: Vault, tmp_path: Path) -> None:
    digest = step(store, "x")
    lease = store.acquire(sha256(b"z"))
    assert lease is not None
    (store.objects.path(digest) / "code" / "result.txt").write_text("changed")
    messages: list[str] = []
    snapshot = back_up(store, vault, messages.append)
    lease.release()
    assert len(messages) == 1
    assert "result.txt" in messages[0]
    restore(vault, snapshot, tmp_path / "there")
    assert Store(tmp_path / "there").cached_step(sha256(b"x")) is None, "it is done again"
    assert not list((tmp_path / "there" / "work").iterdir())


def test_a_restore_that_was_interrupted_goes_on_and_knows_no_step_before_its_end(
    store: Store, vault: Vault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step(store, "x")
    step(store, "y")
    snapshot = back_up(store, vault, silent)
    target, take_all, calls = tmp_path / "there", Vault.take, 0

    def breaks_off(self: Vault, *arguments: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        take_all(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Vault, "take", breaks_off)
    with pytest.raises(KeyboardInterrupt):
        restore(vault, snapshot, target)
    assert not list(Store(target).step_cache)
    monkeypatch.setattr(Vault, "take", take_all)
    restore(vault, snapshot, target)
    assert len(list(Store(target).step_cache)) == 2


def test_no_store_is_overwritten(store: Store, vault: Vault) -> None:
    step(store, "x")
    with pytest.raises(InputError, match="is not empty"):
        restore(vault, back_up(store, vault, silent), store.folder)


def test_a_damaged_file_of_the_backup_leaves_a_store_without_steps(store: Store, vault: Vault, tmp_path: Path) -> None:
    step(store, "x")
    snapshot = back_up(store, vault, silent)
    (damaged,) = [entry for entry in snapshot.entries if entry.path.endswith("result.txt")]
    (tmp_path / "vault" / "files" / damaged.sha256[:2] / damaged.sha256).write_text("y")
    with pytest.raises(UnderstudyError, match="damaged or missing"):
        restore(vault, snapshot, tmp_path / "there")
    assert not list(Store(tmp_path / "there").step_cache)


def test_a_snapshot_of_another_kind_or_version_is_refused(vault: Vault, tmp_path: Path) -> None:
    for kind, version in (("registry", "sqlite"), ("store", "1")):
        with pytest.raises(InputError, match=f"is a {kind} of version {version}"):
            restore(vault, vault.commit(kind, version, []), tmp_path / "there")


def test_a_snapshot_that_is_no_store_is_refused_before_anything_is_created(
    store: Store, vault: Vault, tmp_path: Path
) -> None:
    step(store, "x")
    snapshot = back_up(store, vault, silent)
    [manifest] = [entry for entry in snapshot.entries if entry.path.endswith("/manifest.json")]
    without_manifest = [entry for entry in snapshot.entries if entry != manifest]
    edited = {
        "short": [*snapshot.entries, replace(manifest, path="objects/ab")],
        "elsewhere": [*snapshot.entries, replace(manifest, path="store.json")],
        "no digest": [*snapshot.entries, replace(manifest, path="objects/zz/x/y")],
        "below a file": [*snapshot.entries, replace(manifest, path=f"{manifest.path}/x")],
        "a long name": [*snapshot.entries, replace(manifest, path=f"runs/{'x' * 300}")],
        "a long path": [*snapshot.entries, replace(manifest, path=f"runs{'/x' * 3000}")],
        "no manifest": without_manifest,
        "another manifest": [
            *without_manifest,
            replace(manifest, sha256=without_manifest[0].sha256, size=without_manifest[0].size),
        ],
    }
    for entries in edited.values():
        with pytest.raises(UnderstudyError, match=rf"snapshots/{snapshot.name}\.json was changed or is damaged"):
            restore(vault, replace(snapshot, entries=tuple(entries)), tmp_path / "there")
    assert not (tmp_path / "there").exists()
