"""The store's version: the layout of its folder. Another version is refused; migrate() upgrades an older one in place.

Version 1 called the folder of the step cache `memo`. Nothing else has changed since.
"""

import errno
import json
import os
from pathlib import Path
from typing import Any

from understudy.errors import Fenced, InputError, UnderstudyError, disk_errors
from understudy.store import lease as leases
from understudy.store import step_cache
from understudy.store.files import flush, sha256, write_json
from understudy.store.lease import Lease

VERSION = 2
OLD, OLD_FOLDER = 1, "memo"
MIGRATING = "1 to 2"
"""During a migration: neither the old understudy nor this one opens the store, so neither misses unmoved steps."""
LEASE = sha256(b"migrate to version 2")
"""The key of the lease that migrate() holds; hexadecimal like a step's, so that gc handles its folder."""


def check(folder: Path) -> None:
    """Refuse a store that this understudy does not write. A folder without a version is not a store yet.

    Raises:
        InputError: it has another version, or its version cannot be read.
    """
    version = _version(folder)
    if version in (None, VERSION):
        return
    if version == OLD:
        raise InputError(
            f"{folder}: this store has version {OLD}, this understudy writes version {VERSION}. Run understudy store "
            "migrate: it renames one folder and keeps everything. An older understudy cannot open the store afterwards."
        )
    if version == MIGRATING:
        raise InputError(f"{folder}: the migration of this store has not finished; run understudy store migrate again.")
    raise InputError(
        f"{folder}: this store has version {version}, this understudy writes version {VERSION}. "
        "Use the version that created it, or point UNDERSTUDY_HOME or --home at a new folder."
    )


def write(folder: Path) -> None:
    """Give a new store its version; one that another process created meanwhile keeps its version, and is checked."""
    if _version(folder) is None:
        write_json(_file(folder), {"version": VERSION})
    else:
        check(folder)


def migrate(folder: Path, lease_seconds: float = 30.0) -> bool:
    """Migrate a store of version 1 to this version. An interrupted migration resumes; of concurrent ones, one does it.

    Args:
        folder: the store's folder.
        lease_seconds: how long the holder of a lease may go without renewing it.

    Returns:
        Whether this call migrated the store.

    Raises:
        InputError: the store has an unsupported version, or cannot be written.
        UnderstudyError: a step in it is in progress.
    """
    if _version(folder) not in (OLD, MIGRATING):
        check(folder)
        return False
    work = folder / "work"
    lease = leases.wait_for(work, LEASE, lease_seconds, lambda: _version(folder) not in (OLD, MIGRATING))
    if lease is None:
        check(folder)
        return False
    try:
        return _migrate_under(lease, folder, lease_seconds)
    finally:
        lease.finish()


def _migrate_under(lease: Lease, folder: Path, lease_seconds: float) -> bool:
    """Migrate under the lease; False if another process has just finished."""
    if _version(folder) == VERSION:
        return False
    with disk_errors(folder):
        _refuse_live(folder, lease_seconds)
        _set_version(lease, folder, MIGRATING)
        _refuse_live(folder, lease_seconds)  # a process that opened the store earlier may have begun a step
        _move_entries(folder / OLD_FOLDER, folder / step_cache.FOLDER)
        _set_version(lease, folder, VERSION)
    return True


def _refuse_live(folder: Path, lease_seconds: float) -> None:
    """Raise UnderstudyError while a step is in progress: its result would be written to the old folder."""
    work = folder / "work"
    keys = [path.name for path in work.glob("[!.]*") if path.name != LEASE]
    held_keys = [key for key in keys if leases.is_held(work, key, lease_seconds)]
    if not held_keys:
        return
    process = leases.holder(work, held_keys[0])
    process_name = f"process {process.pid} on {process.host}" if process else "another process"
    raise UnderstudyError(
        f"{folder}: {process_name} runs a step in this store ({held_keys[0][:12]}). Let its run end, or stop it, "
        "and run understudy store migrate again."
    )


def _set_version(lease: Lease, folder: Path, version: Any) -> None:
    """Write the version from inside the lease's folder, so that a process that has lost the lease cannot.

    Raises:
        Fenced: the lease was lost.
    """
    temporary = lease.folder / "version.json"
    try:
        write_json(temporary, {"version": version})
        os.replace(temporary, _file(folder))
    except FileNotFoundError as error:
        raise Fenced(f"{folder}: another process migrates this store") from error


def _move_entries(old: Path, new: Path) -> None:
    """Move every file, then remove the folder. Idempotent.

    Files move one by one, since the target may exist, from an earlier migration that was killed.
    """
    new.mkdir(exist_ok=True)
    while old.is_dir():
        try:
            for path in old.iterdir():
                os.replace(path, new / path.name)
            old.rmdir()
        except FileNotFoundError:  # another process, which took this one for dead, moves them too
            continue
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
    flush(new)
    flush(new.parent)


def _file(folder: Path) -> Path:
    return folder / "version.json"


def _version(folder: Path) -> Any:
    """The recorded version; None if there is none.

    Raises:
        InputError: the file is damaged.
    """
    path = _file(folder)
    try:
        return json.loads(path.read_bytes())["version"]
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        version = OLD if (folder / OLD_FOLDER).is_dir() else VERSION
        raise InputError(
            f'{path}: damaged; the store\'s objects may be whole: write {{"version": {version}}} into it'
        ) from error
