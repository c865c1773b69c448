"""Arrays written by a rank: read as float64 arrays of the expected names and shapes, and rejected otherwise."""

import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from understudy.errors import UnderstudyError

if TYPE_CHECKING:
    from understudy.evaluate.metrics import FloatArray

Shape = tuple[int, ...]
HEADER = 2**16  # maximum bytes of an array's header in an .npy file


def read_arrays(path: Path, expected: Mapping[str, Shape]) -> "dict[str, FloatArray]":
    """Read all arrays of a file.

    Args:
        path: a NumPy archive (.npz).
        expected: the expected shape of each array, by name.

    Raises:
        FileNotFoundError: there is no such file.
        UnderstudyError: the file is no archive of exactly these float64 arrays.
    """
    import numpy as np

    try:
        _check_sizes(path, expected)
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            if sorted(arrays.files) != sorted(expected):
                raise refusal(f"{path.name}: has unexpected arrays")
            arrays_by_name = {name: arrays[name] for name in expected}
    except FileNotFoundError:
        raise
    except (ValueError, TypeError, OSError, EOFError, MemoryError, zipfile.BadZipFile) as error:
        raise refusal(f"{path.name}: {error}") from error
    for name, array in arrays_by_name.items():
        if array.dtype != np.float64 or array.shape != expected[name]:
            raise refusal(f"{path.name}: {name} is {array.dtype} of shape {array.shape}")
    return arrays_by_name


def _check_sizes(path: Path, expected: Mapping[str, Shape]) -> None:
    """Refuse an array larger than expected: a few bytes of an archive may expand to any size (zip bomb)."""
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            shape = expected.get(entry.filename.removesuffix(".npy"), ())
            if entry.file_size > HEADER + 8 * math.prod(shape):
                raise refusal(f"{path.name}: {entry.filename!a} has {entry.file_size:,} bytes")


def refusal(why: str) -> UnderstudyError:
    """The error for an evaluation's files with unexpected contents."""
    return UnderstudyError(f"evaluate: {why}. The result was discarded; check the models' own code, and run again")
