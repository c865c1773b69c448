"""What can go wrong, by the exit code that it earns: 1 something failed, 2 the input is wrong."""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DONE, FAILED, BAD_INPUT, REJECTED, STOPPED = 0, 1, 2, 3, 130


class UnderstudyError(Exception):
    """One message for the user that names the place and the fix; it is shown without a traceback."""

    exit_code = FAILED


class InputError(UnderstudyError):
    """The recipe, the data, or the command line is wrong: running again changes nothing."""

    exit_code = BAD_INPUT


class Rejected(UnderstudyError):
    """The gate said no, and the run was told to end as failed then."""

    exit_code = REJECTED


class Stopped(UnderstudyError):
    """The user asked the run to stop, and it did at a checkpoint."""

    exit_code = STOPPED


class Forbidden(UnderstudyError):
    """A server refuses this account: waiting does not help, and no answer may be taken for a result."""


class Fenced(UnderstudyError):
    """Somebody else holds the lease by now: whatever this process still wants to write is refused."""


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn the operating system's word on a full or read-only disk into one that names the fix.

    Raises:
        UnderstudyError: the disk is full (running again after making room goes on).
        InputError: the disk is read-only or the user may not write there.
    """
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise UnderstudyError(
                f"{path}: the disk is full. What was complete is kept; make room "
                "(understudy store gc shows what can go) and run again."
            ) from error
        if error.errno in (errno.ENOTDIR, errno.EEXIST):
            raise InputError(
                f"{error.filename or path}: is a file, not a folder. Give --home or -o a folder."
            ) from error
        if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise InputError(
                f"{path}: cannot write here ({os.strerror(error.errno)}). Point UNDERSTUDY_HOME or --home "
                "at a folder that user {} may write to.".format(os.getuid())
            ) from error
        raise


def printable_lines(text: str) -> str:
    """A text of others on its own lines, without those before and after it; of empty lines in a row one is left."""
    lines = text.replace("\r\n", "\n").replace("\t", "    ").split("\n")
    shown = "\n".join(printable(line.rstrip()) for line in lines)
    return re.sub(r"\n{3,}", "\n\n", shown).strip("\n")


def printable(text: str) -> str:
    """A text of others on one line: what would steer a terminal, or begin a line of its own, is spelt out."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)
