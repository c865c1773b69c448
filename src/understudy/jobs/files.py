"""A launcher's access to files that ranks can write, without following symlinks.

Ranks run more code than this project's; their launcher has the whole store and credentials. A log that was a link to
/proc/self/environ made it print its passwords, and a probe that was a link created files in other jobs' folders.
Reading something that is not a regular file, such as a pipe, could block forever.
"""

import os
import stat
from pathlib import Path
from typing import BinaryIO, TypeVar

from pydantic import TypeAdapter, ValidationError

from understudy.errors import UnderstudyError

Read = TypeVar("Read")
LARGEST = 2**20  # bytes of a JSON file; those of ranks have a few hundred


def opened(path: Path) -> BinaryIO:
    """Open a file that ranks wrote, for reading.

    Raises:
        FileNotFoundError: the file does not exist.
        UnderstudyError: the path is a symlink or not a regular file.
    """
    return os.fdopen(_descriptor(path, os.O_RDONLY), "rb")


def read(path: Path, kind: TypeAdapter[Read]) -> Read | None:
    """Parse a JSON file that ranks wrote; None if it is missing or not valid for `kind`.

    Raises:
        UnderstudyError: the path is a symlink or not a regular file.
    """
    try:
        with opened(path) as stream:
            return kind.validate_json(stream.read(LARGEST), strict=True)
    except (FileNotFoundError, ValidationError):
        return None


def touch(path: Path) -> float:
    """Create a file if it is missing, set its time to the file system's, and return that time.

    Raises:
        UnderstudyError: the path is a symlink or not a regular file.
    """
    descriptor = _descriptor(path, os.O_RDONLY | os.O_CREAT)
    try:
        os.utime(descriptor)
        return os.fstat(descriptor).st_mtime
    finally:
        os.close(descriptor)


def append(path: Path, text: str) -> None:
    """Append text to a file, which is created if missing.

    Raises:
        UnderstudyError: the path is a symlink or not a regular file.
    """
    with os.fdopen(_descriptor(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "a", encoding="utf-8") as stream:
        stream.write(text)


def _descriptor(path: Path, flags: int) -> int:
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError:
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise _refusal(path) from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _refusal(path)
    return descriptor


def _refusal(path: Path) -> UnderstudyError:
    return UnderstudyError(
        f"{path}: is not a regular file; a rank has replaced it, and it is not followed. Check the models' own code, "
        "and run again"
    )
