"""Exceptions, and the exit code of each: 1 failed, 2 bad input, 3 rejected by the gate, 130 stopped."""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DONE, FAILED, BAD_INPUT, REJECTED, STOPPED = 0, 1, 2, 3, 130


class UnderstudyError(Exception):
    """An error for the user, shown without a traceback; its message names the place and the fix."""

    exit_code = FAILED


class InputError(UnderstudyError):
    """The recipe, the data or the command line is invalid: a retry does not help."""

    exit_code = BAD_INPUT


class Rejected(UnderstudyError):
    """The gate rejected the candidate, and the run was configured to fail in that case."""

    exit_code = REJECTED


class Stopped(UnderstudyError):
    """The user stopped the run, and it ended at a checkpoint."""

    exit_code = STOPPED


class Forbidden(UnderstudyError):
    """A server refuses this account: a retry does not help, and a missing answer must not be taken for a result."""


class Fenced(UnderstudyError):
    """Another process has the lease by now: all further writes of this process are refused."""


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Translate errors of a full or read-only disk into errors that name the fix.

    Raises:
        UnderstudyError: the disk is full (a rerun continues once there is room).
        InputError: the path is a file, the disk is read-only, or the user may not write there.
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
    """Untrusted text with its line breaks, at most one blank line in a row and none at either end."""
    lines = text.replace("\r\n", "\n").replace("\t", "    ").split("\n")
    shown = "\n".join(printable(line.rstrip()) for line in lines)
    return re.sub(r"\n{3,}", "\n\n", shown).strip("\n")


def printable(text: str) -> str:
    """Untrusted text on one line: characters that could control a terminal, and line breaks, are escaped."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)
