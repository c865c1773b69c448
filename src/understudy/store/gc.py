"""Garbage collection: objects that no cached step, registered model or live run reaches, and unfinished leftovers."""

import errno
import math
import os
import secrets
import shutil
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from understudy.errors import UnderstudyError
from understudy.store import step_cache
from understudy.store.lease import is_held
from understudy.store.store import Store

YOUNG = 3600.0  # seconds in which an object may still be on its way into the step cache
SETTLED = 60.0  # seconds in which another gc may still be checking an object that it moved to the trash


@dataclass(frozen=True)
class Removal:
    """A path to remove, the reason, and the bytes that this frees."""

    path: Path
    reason: str
    size: int


def reachable(store: Store, registered: Iterable[str], cached: Iterable[str]) -> set[str]:
    """All digests that are reachable from the roots through the inputs in the manifests."""
    live = [run for run in store.runs() if run.is_live]
    todo = [*registered, *cached, *(digest for run in live for digest in run.uses)]
    reached = set[str]()
    while todo:
        digest = todo.pop()
        manifest = None if digest in reached else store.objects.manifest(digest)
        reached.add(digest)
        todo.extend(manifest.inputs.values() if manifest else ())
    return reached


def plan(store: Store, registered: Iterable[str], forget_after: float | None = None) -> list[Removal]:
    """List the removals that gc would make.

    Args:
        store: the store.
        registered: digests of the models in the registry.
        forget_after: forget finished steps, ended runs and abandoned work not used for this many seconds;
            None keeps them all.
    """
    # Forgotten steps first: their objects are no longer reachable. collect() detects objects that come into use later.
    now = time.time()
    old = [] if forget_after is None else _unused(store, now - forget_after)
    forgotten = {removal.path.stem for removal in old if removal.path.parent.name == step_cache.FOLDER}
    cached = [step.digest for step in store.step_cache if step.key not in forgotten]
    reached = reachable(store, registered, cached)
    unreached = (store.objects.path(digest) for digest in store.objects if digest not in reached)
    # ctime, since a rename leaves mtime as it was: an object built a year ago is young in the trash.
    trash = (path for path in (store.folder / "trash").glob("*") if now - _renamed(path) > SETTLED)
    parts = [store.folder / name for name in ("work", step_cache.FOLDER, "runs", "fingerprints")]
    moved = (path for part in parts for path in part.glob(".*"))
    return [
        *old,
        *(_removal(path, "no cached step, model or live run reaches it") for path in unreached if _is_old(path, now)),
        *(_removal(path, "set aside, damaged or unused") for path in trash),
        *(_removal(path, "left half written") for path in moved if _is_old(path, now)),
    ]


def _unused(store: Store, before: float) -> list[Removal]:
    steps = store.step_cache.files()
    work = (path for path in (store.folder / "work").glob("[0-9a-f]*") if _may_be_abandoned(store, path))
    runs = (run.folder for run in store.runs() if not run.is_live)
    return [
        *(_removal(path, "finished step, not used lately") for path in steps if _touched(path) < before),
        *(_removal(path, "unfinished, abandoned") for path in work if _last_written(path) < before),
        *(_removal(path, "ended run") for path in runs if _touched(path) < before),
    ]


def _is_worked_on(store: Store, work: Path) -> bool:
    return is_held(work.parent, work.name, store.lease_seconds)


def _may_be_abandoned(store: Store, work: Path) -> bool:
    """Whether no process works on it, or its lease cannot be read; collect() then reports and leaves it."""
    try:
        return not _is_worked_on(store, work)
    except OSError:
        return True


def _is_old(path: Path, now: float) -> bool:
    return now - _touched(path) > YOUNG


def _touched(path: Path) -> float:
    """The time of its last change; infinity if another process has removed it."""
    return next(map(_changed, _statuses(path)), math.inf)


def _renamed(path: Path) -> float:
    return next((status.st_ctime for status in _statuses(path)), math.inf)


def _last_written(work: Path) -> float:
    """The last change below a folder; the folder itself changes with every check of its lease."""
    own_change, *changes_below = [_changed(status) for status in _statuses(work)] or [math.inf]
    return max(changes_below, default=own_change)


def _changed(status: os.stat_result) -> float:
    """The time of a change. A rank can set an mtime in the future, but not a ctime, which the system sets."""
    return min(status.st_mtime, status.st_ctime)


def _statuses(path: Path) -> Iterator[os.stat_result]:
    """The status of a file, or of a folder and all below it, without following links and without unreadable folders."""
    todo = [str(path)]
    while todo:  # without recursion: ranks may have nested folders deeply
        entry = todo.pop()
        with suppress(OSError):
            status = os.lstat(entry)
            yield status
            if stat.S_ISDIR(status.st_mode):
                todo += (os.path.join(entry, name) for name in os.listdir(entry))


def _removal(path: Path, reason: str) -> Removal:
    return Removal(path, reason, sum(status.st_size for status in _statuses(path) if stat.S_ISREG(status.st_mode)))


def collect(store: Store, removals: Iterable[Removal], registered: Iterable[str]) -> int:
    """Carry out planned removals, except for paths that have come into use since.

    An object is moved to the trash first and looked up again: if a run began to use it in between, it is restored. An
    object that was already in the trash is looked up too: another gc, however slow, may be about to restore it.

    Returns:
        The bytes freed.

    Raises:
        UnderstudyError: something could not be removed; all the rest was.
    """
    freed, now, moved, failed = 0, time.time(), list[tuple[Removal, Path]](), list[str]()
    for removal in removals:
        path = removal.path
        with _recording_failures(path, failed):
            if path.parent.parent.name == "objects":
                trash = store.objects.set_aside(path.name) if _is_old(path, now) else None
                moved += [(removal, trash)] if trash else []
            elif path.parent.name == "trash":
                moved.append((removal, path))
            elif path.parent.name != "work" or not _is_worked_on(store, path):
                _remove(path)
                freed += removal.size
    # Checked once more, now that they are in the trash. If a run recorded its use before the move, its object is
    # restored here; a run that records it later does not find the object and builds it again.
    reached = reachable(store, registered, (step.digest for step in store.step_cache))
    freed += sum(_clear(store, removal, trash, reached, failed) for removal, trash in moved)
    if failed:
        raise UnderstudyError(
            "all else was removed; remove these as the user who created them, or as root\n" + "\n".join(failed)
        )
    return freed


def _clear(store: Store, removal: Removal, trash: Path, reached: set[str], failed: list[str]) -> int:
    """Remove an object from the trash, or restore it if it is needed; returns the bytes freed."""
    digest = trash.name.partition(".")[0]
    with _recording_failures(trash, failed):
        if digest not in reached or store.objects.path(digest).exists():
            _remove(trash)
            return removal.size
        if trash != removal.path:  # an object that another process set aside may be damaged, and is left to it
            os.rename(trash, removal.path)
    return 0


@contextmanager
def _recording_failures(path: Path, failed: list[str]) -> Iterator[None]:
    """Record a path that could not be removed, and continue: one rank's leftovers must not block the rest."""
    try:
        yield
    except OSError as error:
        failed.append(f"  {error.filename or path}: {error.strerror or error}")


def _remove(path: Path) -> None:
    """Rename a path aside atomically, then delete it: a lease holder inside is fenced."""
    if not path.is_dir():
        path.unlink(missing_ok=True)
        return
    # Without the suffix of an earlier try, or the name would grow with each.
    moved = path.with_name(f".{path.name.lstrip('.').partition('.')[0]}.{secrets.token_hex(4)}")
    try:
        os.rename(path, moved)
    except FileNotFoundError:
        return
    _remove_tree(moved)


def _remove_tree(folder: Path) -> None:
    """Delete as much of a folder as can be deleted.

    Raises:
        OSError: something could not; it names the first obstacle.
    """
    errors = list[OSError]()
    try:
        shutil.rmtree(folder, onerror=lambda _, path, error: errors.append(OSError(*error[1].args[:2], path)))
    except RecursionError as error:
        raise OSError(errno.ENAMETOOLONG, "is nested too deeply", str(folder)) from error
    if errors:
        raise errors[0]
