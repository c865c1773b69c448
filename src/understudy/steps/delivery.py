"""Copying a finished result from its job: as bytes, without running any file or following any link.

A rank runs third-party code, and the process that copies its result may read files that the rank may not. So links
are refused, and so are files that do not belong to such a result. The bytes are copied, not moved: a rank that is
still alive could go on writing into a moved file. models/trust.py checks that the files are the model of the recipe,
and steps/measures.py that they are measures.
"""

import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

from understudy.errors import UnderstudyError
from understudy.models.facts import BESIDE, CONFIG, DESCRIPTION, HISTORY
from understudy.models.weight_files import is_weight_file
from understudy.store.objects import MANIFEST

MODEL = BESIDE | {DESCRIPTION, CONFIG}
"""Files of a model beside its weights."""
COPIED = 16 * 2**20  # bytes per read


def deliver_model(output: Path, staged: Path, initial: Path | None) -> None:
    """Copy a finished model.

    Args:
        output: the folder that the ranks wrote.
        staged: an empty folder.
        initial: the model that training started from, fetched or of an earlier stage, whose description must not
            change; read-only for ranks.

    Raises:
        UnderstudyError: a file is a link, is no part of a model, or differs from the fetched model's.
    """
    unchanged = {path.name for path in initial.iterdir()} - {HISTORY, MANIFEST} if initial else set()
    deliver(output, staged, lambda name: name in MODEL | unchanged or is_weight_file(name))
    for name in sorted(name for name in unchanged if not is_weight_file(name)):
        assert initial is not None
        if not (staged / name).exists() or (staged / name).read_bytes() != (initial / name).read_bytes():
            raise _refusal(output / name, "differs from the file that training started from")


def deliver(output: Path, staged: Path, belongs: Callable[[str], bool]) -> None:
    """Copy a job's result.

    Args:
        output: the folder that the ranks wrote.
        staged: an empty folder.
        belongs: whether the result may have a file of this name.

    Raises:
        UnderstudyError: a file is a link, or has another name.
    """
    with _opened(output) as folder:
        for name in sorted(os.listdir(folder)):
            if not belongs(name):
                raise _refusal(output / name, "is not a file of such a result")
            with _regular(output, name, folder) as source, (staged / name).open("xb") as copy:
                shutil.copyfileobj(source, copy, COPIED)


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    """A folder's descriptor, to open files in it; neither it nor its parent, the attempt's folder, may be a link."""
    real = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    with ExitStack() as stack:
        try:
            parent = os.open(folder.parent, real)
            stack.callback(os.close, parent)
            descriptor = os.open(folder.name, real, dir_fd=parent)
            stack.callback(os.close, descriptor)
        except OSError as error:
            raise _refusal(folder, f"is not a folder ({os.strerror(error.errno or 0)})") from error
        yield descriptor


@contextmanager
def _regular(output: Path, name: str, folder: int) -> Iterator[BinaryIO]:
    """Open a regular file. Anything else, such as a pipe, is refused without blocking."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError as error:
        raise _refusal(output / name, f"cannot be read as a file ({os.strerror(error.errno or 0)})") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _refusal(output / name, "is not a regular file")
    with os.fdopen(descriptor, "rb") as stream:
        yield stream


def _refusal(path: Path, why: str) -> UnderstudyError:
    return UnderstudyError(
        f"{path}: {why}. A job's result has regular files of known names only. The result was discarded; check the "
        "model's own code, and run again"
    )
