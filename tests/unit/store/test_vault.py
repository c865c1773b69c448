import json
import time
from pathlib import Path

import pytest

from understudy.errors import InputError, UnderstudyError
from understudy.store.vault import Vault


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path / 'vault'}"


def file(folder: Path, content: bytes) -> Path:
    path = folder / "source"
    path.write_bytes(content)
    return path


def test_a_file_comes_back_as_it_was_and_is_sent_once(tmp_path: Path, url: str) -> None:
    vault = Vault(url)
    first = vault.add(file(tmp_path, b"weights"), "a/model")
    again = vault.add_bytes(b"weights", "b/model")
    assert (first.sha256, vault.sent) == (again.sha256, 7)
    written = vault.commit("store", "2", [first, again])
    snapshot = Vault(url).snapshot(written.name)
    assert snapshot == written
    Vault(url).take(snapshot.entries[1], tmp_path / "there" / "model")
    assert (tmp_path / "there" / "model").read_bytes() == b"weights"


@pytest.mark.parametrize("content", [b"weighty", b"weigh", None])
def test_a_damaged_object_in_the_vault_is_named_and_removed(tmp_path: Path, url: str, content: bytes | None) -> None:
    vault = Vault(url)
    snapshot = vault.commit("store", "2", [vault.add(file(tmp_path, b"weights"), "a/model")])
    (stored,) = (tmp_path / "vault" / "files").rglob("*/*")
    stored.unlink() if content is None else stored.write_bytes(content)
    with pytest.raises(UnderstudyError, match="which is a/model of a snapshot, is damaged or missing"):
        vault.verify(snapshot)
    with pytest.raises(UnderstudyError, match="damaged or missing"):
        vault.take(snapshot.entries[0], tmp_path / "target")
    assert not (tmp_path / "target").exists()


def test_old_snapshots_go_with_the_files_that_no_other_has(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault = Vault(url)
    both, old = vault.add_bytes(b"both", "both"), vault.add_bytes(b"old", "old")
    now = time.time()
    monkeypatch.setattr("time.time", lambda: now - 1000)
    first = vault.commit("store", "2", [both, old])
    other_snapshot = vault.commit("registry", "sqlite", [both])
    monkeypatch.setattr("time.time", lambda: now)
    newest = vault.commit("store", "2", [both])
    assert vault.forget("store", now - 2000) == 0
    assert vault.forget("store", now - 500) == 1
    assert vault.names() == sorted([other_snapshot.name, newest.name])
    assert [vault.has(entry) for entry in first.entries] == [True, False]
    assert vault.forget("registry", now + 1) == 0, "the newest of a kind stays"


def test_a_snapshot_with_a_path_outside_is_refused(tmp_path: Path, url: str) -> None:
    vault = Vault(url)
    snapshot = vault.commit("store", "2", [vault.add_bytes(b"x", "a")])
    path = tmp_path / "vault" / "snapshots" / f"{snapshot.name}.json"
    value = json.loads(path.read_text())
    value["entries"][0]["path"] = "../outside"
    path.write_text(json.dumps(value))
    with pytest.raises(UnderstudyError, match=r"a file is outside the folder, '\.\./outside'"):
        vault.snapshot(snapshot.name)


@pytest.mark.parametrize(
    "edited",
    [
        {"made": "x"},
        {"name": "\x1b[2J"},
        {"entries": None},
        {"path": 5},
        {"size": -1},
        {"size": "1"},
        {"sha256": 5},
        {"sha256": "../../etc/hostname"},
        {"path": "b"},
    ],
    ids=str,
)
def test_a_snapshot_that_was_edited_is_refused_by_the_name_of_its_file(
    tmp_path: Path, url: str, edited: dict[str, object]
) -> None:
    vault = Vault(url)
    snapshot = vault.commit("store", "2", [vault.add_bytes(b"x", "a"), vault.add_bytes(b"y", "b")])
    path = tmp_path / "vault" / "snapshots" / f"{snapshot.name}.json"
    value = json.loads(path.read_text())
    for name, content in edited.items():
        (value if name in value else value["entries"][0])[name] = content
    path.write_text(json.dumps(value))
    with pytest.raises(UnderstudyError, match=rf"snapshots/{snapshot.name}\.json was changed or is damaged: "):
        vault.snapshot(snapshot.name)


@pytest.mark.parametrize("content", [b"{", b"[]", b"[" * 100_000, b"\xff"], ids=["half", "a list", "deep", "bytes"])
def test_a_file_that_is_no_snapshot_is_refused_by_its_name(tmp_path: Path, url: str, content: bytes) -> None:
    (tmp_path / "vault" / "snapshots").mkdir(parents=True)
    (tmp_path / "vault" / "snapshots" / "store-1.json").write_bytes(content)
    with pytest.raises(UnderstudyError, match=r"store-1\.json was changed or is damaged: it is not a snapshot"):
        Vault(url).snapshot("store-1")


def test_a_snapshot_that_is_not_there_is_answered_with_those_that_are(url: str) -> None:
    snapshot = Vault(url).commit("store", "2", [])
    with pytest.raises(InputError, match=f"there is no snapshot registry-1; there is {snapshot.name}"):
        Vault(url).snapshot("registry-1")
    assert Vault(url).newest("registry") is None
