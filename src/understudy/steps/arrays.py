"""Arrays that a rank wrote: read as numbers of the shapes that they should have, and as nothing else."""

import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from understudy.errors import UnderstudyError

if TYPE_CHECKING:
    from understudy.evaluate.metrics import FloatArray

Shape = tuple[int, ...]
HEADER = 2**16  # bytes before an array in its file, at most


def read_arrays(path: Path, expected: Mapping[str, Shape]) -> "dict[str, FloatArray]":
    """All arrays of a file.

    Args:
        path: an archive of numpy's.
        expected: the shape of each array that it should have, by name.

    Raises:
        FileNotFoundError: there is no such file.
        UnderstudyError: it holds something else.
    """
    import numpy as np

    try:
        _check_sizes(path, expected)
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            if sorted(arrays.files) != sorted(expected):
                raise refusal(f"{path.name}: has other arrays than it should")
            found = {name: arrays[name] for name in expected}
    except FileNotFoundError:
        raise
    except (ValueError, TypeError, OSError, EOFError, MemoryError, zipfile.BadZipFile) as error:
        raise refusal(f"{path.name}: {error}") from error
    for name, array in found.items():
        if array.dtype != np.float64 or array.shape != expected[name]:
            raise refusal(f"{path.name}: {name} is {array.dtype} of shape {array.shape}")
    return found


def _check_sizes(path: Path, expected: Mapping[str, Shape]) -> None:
    """Whether no array takes more than it should: a few bytes of an archive may stand for any number of them."""
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            shape = expected.get(entry.filename.removesuffix(".npy"), ())
            if entry.file_size > HEADER + 8 * math.prod(shape):
                raise refusal(f"{path.name}: {entry.filename!a} has {entry.file_size:,} bytes")


def refusal(why: str) -> UnderstudyError:
    """What is said of an evaluation's files that hold something else."""
    return UnderstudyError(
        f"evaluate: {why}. None of it was taken over; look at what the models' own code does, and run again"
    )
