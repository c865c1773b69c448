import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from understudy.errors import InputError, UnderstudyError
from understudy.store import Store
from understudy.store.files import read_json, sha256, write_json
from understudy.store.objects import MANIFEST

NAMES = st.from_regex(r"[a-c]{1,2}(/[d-e]{1,2})?", fullmatch=True)
CONTENTS = st.dictionaries(NAMES, st.binary(max_size=20), min_size=1, max_size=4)
WORDS = st.dictionaries(st.text(max_size=3), st.text(st.characters(codec="utf-8"), max_size=4), max_size=2)
FACTS = st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=3), st.none() | st.integers() | st.booleans())
fast = settings(deadline=None, max_examples=60)


@contextmanager
def new_store() -> Iterator[Store]:
    with TemporaryDirectory() as folder:
        yield Store(Path(folder) / "store")


def publish(store: Store, contents: dict[str, bytes], kind: str = "things", **manifest: Any) -> str:
    staged = store.folder / "staged"
    staged.mkdir()
    for name, content in contents.items():
        path = staged / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    digest = store.objects.publish(staged, kind, **manifest)
    assert not staged.exists()
    return digest


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.name != MANIFEST}


def is_tree(contents: dict[str, bytes]) -> bool:
    return not any(path.startswith(f"{name}/") for name in contents for path in contents)


@fast
@given(CONTENTS.filter(is_tree), WORDS, FACTS, st.randoms())
def test_publishing_twice_gives_one_object_named_by_its_content(
    contents: dict[str, bytes], inputs: dict[str, str], facts: dict[str, Any], random: Any
) -> None:
    with new_store() as store:
        digest = publish(store, contents, inputs=inputs, facts=facts)
        shuffled = list(contents.items())
        random.shuffle(shuffled)
        assert publish(store, dict(shuffled), inputs=inputs, facts=facts) == digest
        assert list(store.objects) == [digest]
        assert files(store.objects.path(digest)) == contents
        assert sha256((store.objects.path(digest) / MANIFEST).read_bytes()) == digest
        assert store.objects.damage(digest, thorough=True) == store.objects.damage(digest) == []
        manifest = store.objects.manifest(digest)
        assert manifest is not None
        assert (manifest.kind, manifest.inputs, manifest.facts) == ("things", inputs, facts)
        assert manifest.size == sum(map(len, contents.values()))


def test_the_order_in_which_a_disk_lists_files_does_not_matter(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    contents = {"a": b"1", "b": b"2", "c/d": b"3"}
    digest, listed = publish(store, contents), Path.rglob
    for backwards in (False, True):
        monkeypatch.setattr(Path, "rglob", lambda self, p, b=backwards: iter(sorted(listed(self, p), reverse=b)))
        assert publish(store, contents) == digest


@fast
@given(st.lists(st.tuples(CONTENTS.filter(is_tree), st.sampled_from("xy"), WORDS), min_size=2, max_size=2))
def test_different_contents_kinds_or_facts_have_different_digests(
    pair: list[tuple[dict[str, bytes], str, dict[str, str]]],
) -> None:
    assume(pair[0] != pair[1])
    with new_store() as store:
        first, second = (publish(store, contents, kind, inputs=inputs) for contents, kind, inputs in pair)
        assert first != second


@fast
@given(CONTENTS.filter(is_tree), st.data())
def test_any_single_flipped_bit_is_found_and_its_file_named(contents: dict[str, bytes], data: st.DataObject) -> None:
    with new_store() as store:
        digest = publish(store, contents, inputs={"a": "b"}, facts={"n": 1})
        paths = sorted(p for p in store.objects.path(digest).rglob("*") if p.is_file() and p.stat().st_size)
        path = data.draw(st.sampled_from(paths))
        content = bytearray(path.read_bytes())
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        path.write_bytes(content)
        expected = [f"{path}: was changed"]
        assert store.objects.damage(digest, thorough=True) == expected
        assert store.objects.damage(digest) == expected
        assert publish(store, contents, inputs={"a": "b"}, facts={"n": 1}) == digest
        assert store.objects.damage(digest, thorough=True) == []
        assert files(store.objects.path(digest)) == contents


def test_a_missing_or_shortened_file_is_named(store: Store) -> None:
    digest = publish(store, {"a": b"123", "b/c": b"456"})
    root = store.objects.path(digest)
    (root / "a").write_bytes(b"12")
    (root / "b/c").unlink()
    assert store.objects.damage(digest) == [f"{root / 'a'}: has 2 bytes, not 3", f"{root / 'b/c'}: is missing"]
    shutil.rmtree(root / "b")
    (root / "b").write_bytes(b"")
    assert f"{root / 'b/c'}: is missing" in store.objects.damage(digest)
    (root / MANIFEST).unlink()
    assert store.objects.damage(digest) == [f"{root / MANIFEST}: is missing"]
    assert list(store.objects) == [digest]


def test_damage_that_left_no_trace_is_remembered_once_every_byte_was_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("understudy.store.files.Fingerprints._SETTLED", -(10**18))
    digest = publish(store, {"a": b"123"})
    path = store.objects.path(digest) / "a"
    assert store.objects.damage(digest) == []
    (entry,) = (store.folder / "fingerprints").iterdir()
    trusted = read_json(entry)[-1]
    path.write_bytes(b"124")
    stat = path.stat()
    # A rotten disk changes bytes and no times: remember the old hash for the file as it is now.
    write_json(entry, [stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, trusted])
    assert store.objects.damage(digest) == []
    assert store.objects.damage(digest, thorough=True) == [f"{path}: was changed"]
    assert store.objects.damage(digest) == [f"{path}: was changed"]


@pytest.mark.parametrize("call", ["fsync", "rename"])
def test_a_publish_that_fails_leaves_no_object(store: Store, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(UnderstudyError, match="the disk is full"):
            publish(store, {"a": b"1"})
    assert list(store.objects) == []
    shutil.rmtree(store.folder / "staged")
    assert store.objects.damage(publish(store, {"a": b"1"}), thorough=True) == []


def test_everything_is_flushed_before_it_gets_its_name(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    fsync, rename = os.fsync, os.rename

    def flushing(descriptor: int) -> None:
        events.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    def renaming(source: Path, target: Path) -> None:
        events.append("rename")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", flushing)
    monkeypatch.setattr(os, "rename", renaming)
    digest = publish(store, {"a": b"1", "b/c": b"2"})
    before, after = events[: events.index("rename")], events[events.index("rename") + 1 :]
    assert sorted(before) == ["a", "b", "c", MANIFEST, "staged"]
    assert after == [digest[:2], "objects"]


def test_a_digest_may_be_shortened_while_it_is_clear(store: Store) -> None:
    digests = [publish(store, {"a": str(number).encode()}) for number in range(20)]
    assert store.objects.resolve(digests[0]) == digests[0]
    assert store.objects.resolve(digests[0][:20]) == digests[0]
    with pytest.raises(InputError, match="20 objects begin so"):
        store.objects.resolve("")
    with pytest.raises(InputError, match="xyz: no object begins so; understudy store ls lists them"):
        store.objects.resolve("xyz")


def test_an_object_that_two_processes_remove_is_removed_once(store: Store) -> None:
    digest = publish(store, {"a": b"1"})
    assert store.objects.set_aside(digest) is not None
    assert store.objects.set_aside(digest) is None
    assert store.objects.manifest(digest) is None
