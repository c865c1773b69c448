import errno
import os
import time
from pathlib import Path

import pytest

from understudy.errors import UnderstudyError
from understudy.store import files
from understudy.store.files import Fingerprints, read_json, sha256, write_json


@pytest.fixture
def fingerprints(tmp_path: Path) -> Fingerprints:
    (tmp_path / "fingerprints").mkdir()
    return Fingerprints(tmp_path / "fingerprints")


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file counts as untouched for long enough to be remembered."""
    monkeypatch.setattr(Fingerprints, "_SETTLED", -(10**18))


def change_unseen(path: Path, content: bytes) -> None:
    """Change a file in place and put its times back, as cp -p, rsync and tar do."""
    stat = path.stat()
    assert len(content) == stat.st_size
    with path.open("r+b") as stream:
        stream.write(content)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (stat.st_size, stat.st_mtime_ns)


@pytest.mark.usefixtures("settled")
def test_a_file_that_was_not_touched_is_not_read_again(
    fingerprints: Fingerprints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"one")
    assert fingerprints.file(path) == sha256(b"one")
    monkeypatch.setattr(files, "hash_file", lambda path: pytest.fail(f"read {path}"))
    assert fingerprints.file(path) == sha256(b"one")
    assert Fingerprints(tmp_path / "fingerprints").file(path) == sha256(b"one")


@pytest.mark.usefixtures("settled")
def test_a_change_in_place_with_the_same_size_and_time_is_noticed(fingerprints: Fingerprints, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"one")
    assert fingerprints.file(path) == sha256(b"one")
    time.sleep(0.05)  # more than a tick of the file system's clock
    change_unseen(path, b"two")
    assert fingerprints.file(path) == sha256(b"two")


def test_a_file_touched_just_now_is_read_every_time_since_a_second_change_may_leave_no_trace(
    fingerprints: Fingerprints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"one")
    still = files.identity(path)
    monkeypatch.setattr(files, "identity", lambda path: still)  # a clock that ticks slowly
    assert fingerprints.file(path) == sha256(b"one")
    change_unseen(path, b"two")
    assert fingerprints.file(path) == sha256(b"two")


@pytest.mark.usefixtures("settled")
def test_a_replaced_file_of_the_same_size_and_time_is_noticed(fingerprints: Fingerprints, tmp_path: Path) -> None:
    path, replacement = tmp_path / "file", tmp_path / "other"
    path.write_bytes(b"one")
    replacement.write_bytes(b"two")
    assert fingerprints.file(path) == sha256(b"one")
    os.utime(replacement, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    os.replace(replacement, path)
    assert fingerprints.file(path) == sha256(b"two")


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("garbage", [b"", b"[1, 2", b"\xff\xfe", b"[]", b"null", b"{}", b'[1, "x"]'])
def test_a_damaged_memory_costs_a_reading_and_no_more(
    fingerprints: Fingerprints, tmp_path: Path, garbage: bytes
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"one")
    fingerprints.file(path)
    (entry,) = (tmp_path / "fingerprints").iterdir()
    entry.write_bytes(garbage)
    assert fingerprints.file(path) == sha256(b"one")


@pytest.mark.usefixtures("settled")
def test_a_full_disk_costs_a_reading_and_no_more(
    fingerprints: Fingerprints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"one")

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    assert fingerprints.file(path) == sha256(b"one")


def test_a_tree_is_its_names_and_contents(fingerprints: Fingerprints, tmp_path: Path) -> None:
    root = tmp_path / "tree"
    (root / "sub").mkdir(parents=True)
    (root / "a.txt").write_text("1")
    (root / "sub" / "b.txt").write_text("2")
    digests = [fingerprints.tree(root)]
    (root / "sub" / "b.txt").write_text("3")
    digests.append(fingerprints.tree(root))
    (root / "sub" / "b.txt").rename(root / "sub" / "c.txt")
    digests.append(fingerprints.tree(root))
    (root / "a.txt").unlink()
    digests.append(fingerprints.tree(root))
    assert len(set(digests)) == 4
    (root / "other.png").write_text("x")
    assert fingerprints.tree(root / "other.png") == fingerprints.file(root / "other.png")


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_json_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    path = tmp_path / "value.json"
    write_json(path, {"a": 1})

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(UnderstudyError, match="the disk is full"):
            write_json(path, {"a": 2})
    assert read_json(path) == {"a": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_invalid_json_is_read_as_nothing(tmp_path: Path) -> None:
    assert read_json(tmp_path / "none.json") is None
    (tmp_path / "empty.json").touch()
    assert read_json(tmp_path / "empty.json") is None


@pytest.mark.parametrize(("mode", "expected"), [(0o2775, 0o664), (0o775, 0o644)], ids=["of a group", "of one user"])
def test_files_get_the_group_and_mode_of_their_folder(tmp_path: Path, mode: int, expected: int) -> None:
    before = os.umask(0o022)
    try:
        (tmp_path / "home").mkdir()
        (tmp_path / "home").chmod(mode)
        files.share(tmp_path / "home")
        write_json(tmp_path / "home" / "value.json", 1)
        assert (tmp_path / "home" / "value.json").stat().st_mode & 0o777 == expected
    finally:
        os.umask(before)


@pytest.mark.parametrize("content", ["{", "[" * 200_000], ids=["half", "endlessly deep"])
def test_a_damaged_json_file_is_read_as_none(content: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text(content)
    assert read_json(tmp_path / "file") is None
