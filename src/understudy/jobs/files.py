"""Files in a job's folders, as its launcher reads and touches them: where a rank left a link, it goes nowhere.

Ranks write there, and run more code than this project's; their launcher has the whole store and credentials. A log that
was a link to /proc/self/environ had it print its passwords, and a probe that was one made files in other jobs' folders.
What is no file, such as a pipe, would have it wait for ever.
"""

import os
import stat
from pathlib import Path
from typing import BinaryIO, TypeVar

from pydantic import TypeAdapter, ValidationError

from understudy.errors import UnderstudyError

Read = TypeVar("Read")
LARGEST = 2**20  # bytes of a JSON file; those of ranks have some hundred


def opened(path: Path) -> BinaryIO:
    """A file that ranks wrote, to be read.

    Raises:
        FileNotFoundError: there is none.
        UnderstudyError: it is a link, or no file.
    """
    return os.fdopen(_descriptor(path, os.O_RDONLY), "rb")


def read(path: Path, kind: TypeAdapter[Read]) -> Read | None:
    """What a JSON file of the ranks' says; None when there is none, or when it says nothing of that kind.

    Raises:
        UnderstudyError: it is a link, or no file.
    """
    try:
        with opened(path) as stream:
            return kind.validate_json(stream.read(LARGEST), strict=True)
    except (FileNotFoundError, ValidationError):
        return None


def touch(path: Path) -> float:
    """Make a file, or find it made, and give it the file system's time, which is returned.

    Raises:
        UnderstudyError: it is a link, or no file.
    """
    descriptor = _descriptor(path, os.O_RDONLY | os.O_CREAT)
    try:
        os.utime(descriptor)
        return os.fstat(descriptor).st_mtime
    finally:
        os.close(descriptor)


def append(path: Path, text: str) -> None:
    """Add text to a file, which is made when there is none.

    Raises:
        UnderstudyError: it is a link, or no file.
    """
    with os.fdopen(_descriptor(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "a", encoding="utf-8") as stream:
        stream.write(text)


def _descriptor(path: Path, flags: int) -> int:
    try:
        found = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError:
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise _refusal(path) from None
        raise
    if not stat.S_ISREG(os.fstat(found).st_mode):
        os.close(found)
        raise _refusal(path)
    return found


def _refusal(path: Path) -> UnderstudyError:
    return UnderstudyError(
        f"{path}: is no file, but something else that a rank put in its place; it is not followed. Look at what the "
        "models' own code does, and run again"
    )
