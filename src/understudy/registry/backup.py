"""A registry into a vault and back: its database first, the files after it.

The database names files that were written before it did, and a file is written once. So a copy of the database, and a
list of the files that is made after it, have all that belongs together, while the server goes on; unless gc removed
something in between. A restore is the other way round: who finds the database finds the files.
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
"""The path of the database's dump in a snapshot; files lie below FILES."""
FILES = "files/"


def back_up(vault: Vault, dump: Path, version: str, files: Bucket, tell: Callable[[str], None]) -> Snapshot:
    """Copy a registry into a vault. The server may go on.

    Args:
        vault: where to.
        dump: a copy of the database, made before this is called.
        version: what kind of dump it is: sqlite or postgresql.
        files: where the server's files lie.
        tell: called with what is left out, and why.
    """
    known, listed = by_path(vault.newest(KIND)), files.listed("")
    if not listed and any(path.startswith(FILES) for path in known):
        raise UnderstudyError(
            f"{files.url}: no file is there, and the newest snapshot has some; is it the right place?"
        )
    entries = [vault.add(dump, DATABASE)]
    with tempfile.TemporaryDirectory() as folder:
        for name, (size, changed) in sorted(listed.items()):
            before = known.get(FILES + name)
            if before and (before.size, before.changed) == (size, changed) and vault.holds(before):
                entries.append(before)
                continue
            copied = Path(folder) / "file"
            if not files.get(name, copied):
                tell(f"left out: {name} was removed meanwhile")
                continue
            entries.append(vault.add(copied, FILES + name, changed=changed))
            copied.unlink()
    return vault.commit(KIND, version, entries)


@contextmanager
def sqlite_dump(database: Path) -> Iterator[Path]:
    """A copy of a SQLite database that may be in use.

    Raises:
        InputError: there is none.
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
    """Put a registry's files where the server's files lie, then its dump into a file. Both places are empty before.

    A restore that was interrupted goes on: what is there already and belongs there is left.

    Args:
        vault: where from.
        snapshot: what.
        dump: where the copy of the database goes; `pg_restore` makes a database of one of PostgreSQL.
        files: where the server's files are to lie.

    Raises:
        InputError: one of the places is not empty.
        UnderstudyError: the snapshot was changed, or a file of it is damaged; there is no dump then.
    """
    database = by_path(snapshot).get(DATABASE)
    if database is None:
        raise vault.changed(snapshot.name, f"it has no file {DATABASE!r}")
    wanted = {entry.path.removeprefix(FILES): entry for entry in snapshot.entries if entry.path.startswith(FILES)}
    there = files.listed("")
    strangers = sorted(there.keys() - wanted.keys())
    if dump.exists() or strangers:
        found = dump if dump.exists() else f"{files.url}: {strangers[0]}"
        raise InputError(f"{found} is there already; a registry is restored into an empty place")
    with tempfile.TemporaryDirectory() as folder:
        copied = Path(folder) / "file"
        for name, entry in wanted.items():
            vault.take(entry, copied)
            files.put(copied, name)
    _write(vault, database, dump)


def _write(vault: Vault, entry: Entry, dump: Path) -> None:
    """The dump, whole or not at all."""
    aside = dump.with_name(f".{dump.name}.restored")
    with disk_errors(dump):
        vault.take(entry, aside)
        flush(aside)
        aside.rename(dump)
