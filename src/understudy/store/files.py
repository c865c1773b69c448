"""Atomic writes of files (aside, flush, rename), and their SHA-256, cached while a file is untouched."""

import hashlib
import json
import os
import re
import secrets
import shutil
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from understudy.errors import UnderstudyError, disk_errors


def canonical(value: Any) -> bytes:
    """JSON with one spelling: the same value is always the same bytes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


HEXADECIMAL = re.compile("[0-9a-f]{64}")
"""The pattern of a digest."""


def sha256(data: bytes) -> str:
    """The hex digest of bytes."""
    return hashlib.sha256(data).hexdigest()


def flush(path: Path) -> None:
    """Make a file or a folder's entries durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def share(folder: Path) -> None:
    """Make files of this process writable for its group, if a folder has the set-group-ID bit.

    Pods that share a volume may run as different users of one group.
    """
    if folder.stat().st_mode & stat.S_ISGID:
        os.umask(0o002)


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically.

    Raises:
        UnderstudyError, InputError: the disk is full or read-only.
    """
    write_whole(path, json.dumps(value, indent=1, ensure_ascii=False).encode() + b"\n")


def write_whole(path: Path, content: bytes) -> None:
    """Write a file atomically; an existing one keeps its mode.

    Raises:
        UnderstudyError, InputError: the disk is full or read-only.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with disk_errors(path):
        try:
            temporary.write_bytes(content)
            if path.exists():
                shutil.copymode(path, temporary)
            flush(temporary)
            os.replace(temporary, path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise


def read_json(path: Path) -> Any:
    """Read a JSON file; None when there is none, or when it is damaged."""
    try:
        return json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError, RecursionError):
        return None


class Fingerprints:
    """SHA-256 of files, computed again only when a file's inode has changed.

    The identity is (device, inode, size, mtime, ctime). A program can set mtime back, but not ctime: a file that was
    changed in place with the same size and time is detected. A file touched within the last second is read every time,
    since a second change within the clock's tick would leave no trace. Silent disk corruption is not detected;
    Objects.damage(thorough=True) reads every byte for that.
    """

    _SETTLED = 1_000_000_000  # nanoseconds; more than a tick of any file system's clock

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def file(self, path: Path) -> str:
        """The file's SHA-256."""
        cached = read_json(self._entry(path))
        return str(cached[-1]) if isinstance(cached, list) and cached[:-1] == identity(path) else self.read(path)

    def read(self, path: Path) -> str:
        """The file's SHA-256, all bytes read now; the cached one is replaced."""
        before = identity(path)
        digest = hash_file(path)
        # The identity was taken before the bytes were read: a change in between gives another ctime, and is read again.
        if time.time_ns() - before[-1] > self._SETTLED and os.access(self._folder, os.W_OK):
            with suppress(UnderstudyError):  # a full disk only costs time
                write_json(self._entry(path), [*before, digest])
        return digest

    def _entry(self, path: Path) -> Path:
        return self._folder / sha256(os.fsencode(path.absolute()))

    def tree(self, root: Path) -> str:
        """One digest over names and contents of the files below a folder (or of one file)."""
        if root.is_file():
            return self.file(root)
        files = sorted(path for path in root.glob("**/*") if path.is_file())
        return sha256(canonical([[str(path.relative_to(root)), self.file(path)] for path in files]))


def identity(path: Path) -> list[int]:
    """A file's identity by its inode; every write changes it, even with the same size and time."""
    stat = path.stat()
    return [stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]


def hash_file(path: Path) -> str:
    """SHA-256 of a file's bytes, all of them read now."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
