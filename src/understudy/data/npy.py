"""A .npy file written row by row, which need not fit into memory.

It is not a memory map: on a full disk a write to a memory map kills the process, while this raises OSError.
"""

from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray


class NpyFile:
    """Rows of one dtype and shape; their number is written into the header at the end."""

    def __init__(self, path: Path, dtype: DTypeLike, row: tuple[int, ...] = ()) -> None:
        self._dtype, self._row, self._rows = np.dtype(dtype), row, 0
        self._stream = path.open("wb")

    def __enter__(self) -> Self:
        self._write_header()
        return self

    def append(self, rows: NDArray[Any]) -> None:
        """Add rows (n, *row)."""
        assert rows.shape[1:] == self._row
        self._stream.write(rows.astype(self._dtype, order="C", copy=False).tobytes())
        self._rows += len(rows)

    def __exit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        with self._stream:
            if kind is None:
                # numpy pads the header, so that its length does not depend on the number of rows.
                self._stream.seek(0)
                self._write_header()

    def _write_header(self) -> None:
        header = {
            "descr": np.lib.format.dtype_to_descr(self._dtype),
            "fortran_order": False,
            "shape": (self._rows, *self._row),
        }
        np.lib.format.write_array_header_1_0(self._stream, header)
