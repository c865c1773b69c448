"""Backup of a registry to a vault, database first, and its restore, files first.

A file is written before the database refers to it, and only once. So a dump of the database and a later list of the
files are consistent while the server runs, unless gc removes a file in between. A restore uses the reverse order: once
the database exists, so do its files.
"""

import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from understudy.errors import InputError, UnderstudyError, disk_errors
from understudy.store.bucket import Bucket
from understudy.store.files import flush
from understudy.store.vault import Entry, Snapshot, Vault, by_path

KIND = "registry"
DATABASE = "database"
"""The path of the database dump in a snapshot; files are below FILES."""
FILES = "files/"


def back_up(vault: Vault, dump: Path, version: str, files: Bucket, tell: Callable[[str], None]) -> Snapshot:
    """Back up a registry to a vault. The server may keep running.

    Args:
        vault: the target.
        dump: a copy of the database, made before this call.
        version: the format of the dump: sqlite or postgresql.
        files: the server's file storage.
        tell: called with each omitted file and the reason.
    """
    backed_up, listed = by_path(vault.newest(KIND)), files.listed("")
    if not listed and any(path.startswith(FILES) for path in backed_up):
        raise UnderstudyError(
            f"{files.url}: no file is there, and the newest snapshot has some; is it the right place?"
        )
    entries = [vault.add(dump, DATABASE)]
    with tempfile.TemporaryDirectory() as folder:
        for name, (size, changed) in sorted(listed.items()):
            previous_entry = backed_up.get(FILES + name)
            if (
                previous_entry
                and (previous_entry.size, previous_entry.changed) == (size, changed)
                and vault.has(previous_entry)
            ):
                entries.append(previous_entry)
                continue
            copy = Path(folder) / "file"
            if not files.get(name, copy):
                tell(f"left out: {name} was removed meanwhile")
                continue
            entries.append(vault.add(copy, FILES + name, changed=changed))
            copy.unlink()
    return vault.commit(KIND, version, entries)


@contextmanager
def sqlite_dump(database: Path) -> Iterator[Path]:
    """A copy of a SQLite database that may be in use.

    Raises:
        InputError: the database does not exist.
    """
    if not database.exists():
        raise InputError(f"{database}: there is no registry here to back up; --home points at another")
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / database.name
        try:
            with closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(copy)) as target:
                source.backup(target)
        except sqlite3.Error as error:
            raise UnderstudyError(f"{database}: MLflow's database cannot be read ({error})") from error
        yield copy


def restore(vault: Vault, snapshot: Snapshot, dump: Path, files: Bucket) -> None:
    """Restore a registry's files to the server's file storage, then write its database dump. Both start empty.

    An interrupted restore can be repeated: files of the snapshot may be there already, and are written again.

    Args:
        vault: the source.
        snapshot: the snapshot to restore.
        dump: the path of the database dump; `pg_restore` turns a PostgreSQL dump into a database.
        files: the server's file storage.

    Raises:
        InputError: the dump or a file outside the snapshot exists already.
        UnderstudyError: the snapshot was changed, or a file of it is damaged; no dump is written then.
    """
    database = by_path(snapshot).get(DATABASE)
    if database is None:
        raise vault.changed(snapshot.name, f"it has no file {DATABASE!r}")
    entries_by_name = {
        entry.path.removeprefix(FILES): entry for entry in snapshot.entries if entry.path.startswith(FILES)
    }
    existing = files.listed("")
    unexpected = sorted(existing.keys() - entries_by_name.keys())
    if dump.exists() or unexpected:
        obstacle = dump if dump.exists() else f"{files.url}: {unexpected[0]}"
        raise InputError(f"{obstacle} is there already; a registry is restored into an empty place")
    with tempfile.TemporaryDirectory() as folder:
        copied = Path(folder) / "file"
        for name, entry in entries_by_name.items():
            vault.take(entry, copied)
            files.put(copied, name)
    _write(vault, database, dump)


def _write(vault: Vault, entry: Entry, dump: Path) -> None:
    """Write the dump atomically."""
    temporary = dump.with_name(f".{dump.name}.restored")
    with disk_errors(dump):
        vault.take(entry, temporary)
        flush(temporary)
        temporary.rename(dump)
