"""Backup of a store to a vault, and restore: references to objects are read first and restored last.

Objects never change, and a reference to one is written after it. So a backup made during runs has the object of
each of its finished steps, unless gc removed it, and then the step is done again. Work in progress is left out: its
checkpoints change, and without them a training begins anew.
"""

import json
import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from understudy.errors import InputError, UnderstudyError, disk_errors
from understudy.store import judged, step_cache
from understudy.store.files import flush, read_json, write_json
from understudy.store.objects import MANIFEST, Manifest
from understudy.store.store import Store
from understudy.store.vault import Entry, Snapshot, Vault, by_path
from understudy.store.version import VERSION

KIND = "store"
REFERRING = ("servers", judged.FOLDER, "runs", step_cache.FOLDER)
"""Folders with references to objects; the step cache is restored last of all."""
OBJECT = re.compile(r"objects/(..)/(\1[0-9a-f]{62})/.+", re.DOTALL)
"""The path of an object's file; its second group is the digest."""
MARK = "restoring.json"
"""Names the snapshot that is being restored, so that a killed restore resumes."""


DAMAGED = "damaged, left out: "
"""The prefix of a line about a damaged object that the snapshot lacks."""


def back_up(store: Store, vault: Vault, report: Callable[[str], None]) -> Snapshot:
    """Copy a store into a vault. Runs may continue.

    Args:
        store: the store.
        vault: the target.
        report: called with each omission and its reason.
    """
    entries = [
        vault.add_bytes(content, f"{part}/{path}")
        for part in REFERRING
        for path, content in _contents(store.folder / part)
    ]
    for digest in store.objects:
        damage = store.objects.damage(digest)
        if damage:
            report(f"{DAMAGED}{damage[0]}")
            continue
        try:
            entries += _add_object(store, vault, digest)
        except FileNotFoundError:
            report(f"left out: {digest} was removed meanwhile")
    return vault.commit(KIND, str(VERSION), entries)


def _contents(folder: Path) -> Iterator[tuple[str, bytes]]:
    """The current content of every file below a folder, except for half-written and vanishing files."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if path.is_symlink() or any(part.startswith(".") for part in name.parts):
            continue
        try:
            yield name.as_posix(), path.read_bytes()
        except (FileNotFoundError, IsADirectoryError):
            continue


def _add_object(store: Store, vault: Vault, digest: str) -> list[Entry]:
    manifest, root = store.objects.manifest(digest), store.objects.path(digest)
    if manifest is None:
        raise FileNotFoundError(root)
    prefix = f"objects/{digest[:2]}/{digest}"
    files = [vault.add(root / name, f"{prefix}/{name}", value) for name, _, value in manifest.files]
    return [*files, vault.add_bytes((root / MANIFEST).read_bytes(), f"{prefix}/{MANIFEST}")]


def restore(vault: Vault, snapshot: Snapshot, folder: Path) -> None:
    """Restore a snapshot into an empty folder. An interrupted restore resumes with the same snapshot.

    Raises:
        InputError: the folder is not empty, or the snapshot is of another kind or version.
        UnderstudyError: it was changed, or a file of it is damaged; no cached step lacks its object then.
    """
    if (snapshot.kind, snapshot.version) != (KIND, str(VERSION)):
        raise InputError(
            f"{snapshot.name}: is a {snapshot.kind} of version {snapshot.version}, and this understudy restores a "
            f"store of version {VERSION}; restore it with the version that wrote it, and migrate it afterwards"
        )
    objects = _objects(vault, snapshot)
    marked = read_json(folder / MARK)
    if marked != {"snapshot": snapshot.name} and folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder}: is not empty; move it away, or point --home at an empty folder")
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / MARK, {"snapshot": snapshot.name})
    store = Store(folder)
    for digest, entries in objects.items():
        if store.objects.damage(digest):
            _restore_object(vault, store, digest, entries)
    for part in REFERRING:
        for entry in snapshot.entries:
            if entry.path.startswith(f"{part}/"):
                vault.take(entry, store.folder / entry.path)
    (folder / MARK).unlink()
    flush(folder)


def _objects(vault: Vault, snapshot: Snapshot) -> Mapping[str, list[Entry]]:
    """The files of each object, including the manifest that its digest names.

    Raises:
        UnderstudyError: the snapshot is not of a store.
    """
    objects: dict[str, list[Entry]] = {}
    paths = by_path(snapshot)
    for entry in snapshot.entries:
        if any(str(parent) in paths for parent in PurePosixPath(entry.path).parents) or not _fits(entry.path):
            raise vault.changed(snapshot.name, f"its path {entry.path!r} is too long, or lies below another file")
        if match := OBJECT.fullmatch(entry.path):
            objects.setdefault(match[2], []).append(entry)
        elif not entry.path.startswith(tuple(f"{part}/" for part in REFERRING)):
            raise vault.changed(snapshot.name, f"a store has no such file, {entry.path!r}")
    for digest, entries in objects.items():
        if (f"objects/{digest[:2]}/{digest}/{MANIFEST}", digest) not in {(it.path, it.sha256) for it in entries}:
            raise vault.changed(snapshot.name, f"the object {digest} has no manifest, or another one")
    return objects


def _fits(path: str) -> bool:
    """Whether file systems accept a path of this length."""
    return len(path) < 2000 and all(len(part.encode()) < 256 for part in path.split("/"))


def _restore_object(vault: Vault, store: Store, digest: str, entries: list[Entry]) -> None:
    staged = store.folder / "work" / f".restored.{secrets.token_hex(4)}"
    try:
        for entry in entries:
            vault.take(entry, staged / "/".join(entry.path.split("/")[3:]))
        manifest = Manifest.decode(json.loads((staged / MANIFEST).read_bytes()))
        restored = store.objects.publish(staged, manifest.kind, manifest.inputs, manifest.facts)
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    if restored != digest:
        raise UnderstudyError(f"{digest}: the snapshot has other files under this digest; restore an older one")
