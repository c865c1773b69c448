"""A cache of the ranks' inputs on their node's local disk: the examples, the teacher, the initial model.

The node agent copies them once, before its ranks start, if the cluster's settings name a cache. A copy is an object
as in the store: named by its digest, written aside and renamed into place. Every byte of it is read and hashed before
ranks use it. Without a copy (no room, a failing disk) ranks read the same bytes from the shared volume.
"""

import fcntl
import logging
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from understudy.agent.heartbeat import node_name
from understudy.errors import UnderstudyError
from understudy.jobs.specification import JobSpec
from understudy.store.files import Fingerprints, sha256
from understudy.store.objects import Manifest, Objects, described

log = logging.getLogger(__name__)

CACHE = "UNDERSTUDY_CACHE"
"""Variable with the cache's folder on this node; unset without a cache."""
LIMIT = "UNDERSTUDY_CACHE_LIMIT"
"""Variable with the cache's limit in bytes: Kubernetes evicts a pod with more in an emptyDir."""
BLOCK = 4096  # bytes; a file occupies whole blocks


def local(spec: JobSpec, path: Path) -> Path:
    """The path of the specification that this node's ranks read: the job's, or a local one that names the copies.

    Args:
        spec: the job.
        path: the job's specification, the same for all nodes.
    """
    if CACHE not in os.environ:
        return path
    cache = _cache()
    copies = {name: str(cache.copy(Path(source), name)) for name, source in spec.payload.reads.items()}
    local_path = Path(tempfile.mkdtemp()) / "job.json"
    return replace(spec, payload=spec.payload.reading(copies)).write(local_path)


def _cache() -> "Cache":
    limit = os.environ.get(LIMIT)
    return Cache(
        Path(os.environ[CACHE]), lambda text: log.info("%s: %s", node_name(), text), int(limit) if limit else None
    )


class Cache:
    """A folder of copies, shared by the agents of several pods."""

    def __init__(self, folder: Path, report: Callable[[str], None], limit: int | None = None) -> None:
        self._folder, self._report, self._limit = folder, report, limit
        self._objects = _objects(folder / "objects")

    def copy(self, source: Path, name: str) -> Path:
        """The path to read a folder from: a complete local copy, created if missing, or else the folder itself.

        The copy stays until this process ends. No error is raised: without a copy the work is only slower.

        Args:
            source: an object of the store, or any folder of files.
            name: its name in messages.
        """
        # A failure costs only time: ranks then read the same bytes from the shared volume.
        began = time.monotonic()
        try:
            for part in ("objects", "incoming", "locks"):
                (self._folder / part).mkdir(parents=True, exist_ok=True)
            self._sweep()
            objects = _objects(source.absolute().parents[1])
            manifest = objects.manifest(source.name) or described(source, "folder", {}, {})
            path, is_new = self._find_or_copy(source, name, manifest)
        except (UnderstudyError, OSError) as error:
            self._report(f"no copy of {name} on this node ({error}): ranks read the shared one, the result is the same")
            return source
        if is_new:
            self._report(f"{name}: {manifest.size / 1e6:,.1f} MB copied to this node, {time.monotonic() - began:.1f} s")
        return path

    def _find_or_copy(self, source: Path, name: str, manifest: Manifest) -> tuple[Path, bool]:
        """The copy's path, and whether the copy is new."""
        digest = sha256(manifest.encode())
        lock = self._lock(digest, fcntl.LOCK_SH)  # never closed: the copy is in use until this process ends
        assert lock is not None
        # The shared lock keeps the copy from _make_room() of other agents, and lets them read it. The kernel releases
        # it whenever this process ends.
        path, is_new = self._objects.path(digest), False
        while path.exists() and (damage := self._objects.damage(digest, thorough=True)):
            self._report(f"the copy of {name} on this node is damaged and is copied again: {damage[0]}")
            self._drop(digest, lock)
        if not path.exists():
            self._make_room(manifest.size + BLOCK * (len(manifest.files) + 8))
            self._make(source, manifest, digest)
            is_new = True
        os.utime(path)  # the most recently used is removed last
        return path, is_new

    def _make(self, source: Path, manifest: Manifest, digest: str) -> None:
        """Copy the files aside, hash the copy and rename it into place; of two concurrent agents the first one wins."""
        suffix = secrets.token_hex(8)
        lock, staged = self._lock(suffix, fcntl.LOCK_EX), self._folder / "incoming" / suffix
        assert lock is not None
        try:
            staged.mkdir()
            for name, _, _ in manifest.files:
                (staged / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source / name, staged / name)
            arrived = self._objects.publish(staged, manifest.kind, manifest.inputs, manifest.facts)
            if arrived != digest:
                self._remove(arrived)
                raise UnderstudyError("its bytes do not match its manifest")
        finally:
            shutil.rmtree(staged, ignore_errors=True)
            (self._folder / "locks" / suffix).unlink(missing_ok=True)
            os.close(lock)

    # Room

    def _make_room(self, needed: int) -> None:
        """Remove unused copies, the least recently used first, until there is room.

        Raises:
            UnderstudyError: there is not enough room.
        """
        for path in sorted((self._folder / "objects").glob("??/*"), key=lambda path: path.stat().st_mtime):
            if self._room() >= needed:
                return
            lock = self._lock(path.name, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if lock is not None:
                self._remove(path.name)
                os.close(lock)
        if (room := self._room()) < needed:
            raise UnderstudyError(f"it needs {needed / 1e6:,.1f} MB, there is room for {max(0, room) / 1e6:,.1f} MB")

    def _room(self) -> int:
        """Free bytes."""
        disk = os.statvfs(self._folder)
        free = disk.f_bavail * disk.f_frsize
        if self._limit is None:
            return free
        # st_blocks counts units of 512 bytes on any file system. Kubernetes counts occupied blocks, too.
        return min(free, self._limit - sum(path.lstat().st_blocks * 512 for path in self._folder.rglob("*")))

    def _drop(self, digest: str, lock: int) -> None:
        """Remove a damaged copy.

        Raises:
            UnderstudyError: another agent uses it, which read it when it was intact.
        """
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UnderstudyError("the damaged one is in use") from error
        self._remove(digest)
        fcntl.flock(lock, fcntl.LOCK_SH)

    def _remove(self, digest: str) -> None:
        if removed := self._objects.set_aside(digest):
            shutil.rmtree(removed, ignore_errors=True)

    def _sweep(self) -> None:
        """Remove the leftovers of killed agents."""
        for path in (self._folder / "trash").glob("*"):  # the folder stays: another agent may be about to use it
            shutil.rmtree(path, ignore_errors=True)
        for path in (self._folder / "incoming").iterdir():
            lock = self._lock(path.name, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if lock is not None:
                shutil.rmtree(path, ignore_errors=True)
                (self._folder / "locks" / path.name).unlink(missing_ok=True)
                os.close(lock)

    def _lock(self, name: str, mode: int) -> int | None:
        """An open lock, released when it is closed or the process ends; None if another process has it."""
        lock = os.open(self._folder / "locks" / name, os.O_RDWR | os.O_CREAT, 0o666)
        with suppress(BlockingIOError):
            fcntl.flock(lock, mode)
            return lock
        os.close(lock)
        return None


def _objects(folder: Path) -> Objects:
    """Objects without cached fingerprints: every check reads the bytes."""
    return Objects(folder, Fingerprints(folder / "nowhere"))
