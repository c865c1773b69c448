"""The files of a folder of cached logits, and the checks of their sizes and checksums.

`logits.json` describes the folder, `tables.json` the code. `part-00012.bin` has the blocks of a fixed range of examples
end to end, and `part-00012.npy` a row of INDEX for each of them. A block is the width of a length in bytes (1, 2 or 4),
the length of each position, and the positions' bytes.
"""

import json
import re
import zlib
from pathlib import Path
from tokenize import TokenError
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from understudy.errors import UnderstudyError
from understudy.store.files import canonical, sha256
from understudy.teachers.cache.tables import Tables

MAGIC = b"logits\x00\x01"
"""The first bytes of a part."""
INDEX = np.dtype(
    [
        ("positions", "<u4"),
        ("bytes", "<u4"),
        ("crc32", "<u4"),
        ("entries", "<u4"),
        ("tail", "<f8"),
        ("divergence", "<f8"),
    ]
)
"""An example's positions, the size and CRC-32 of its block, and sums over its positions: entries, the tail's mass, and
the KL divergence from the teacher, NaN if unknown."""
LARGEST_JSON = 2**26
HEADER_ERRORS = (ValueError, TypeError, SyntaxError, KeyError, MemoryError, RecursionError, TokenError)
"""What numpy raises of a header, which it parses as an expression of Python."""
FILES = re.compile(r"(logits|tables)\.json|part-\d{5,}\.(bin|npy)")
"""The names of a folder's files."""


class Description(BaseModel):
    """The content of `logits.json`."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    format: int = Field(ge=1, le=1)
    complete: bool
    vocabulary: int = Field(ge=1)
    examples: int = Field(ge=0)
    examples_per_part: int = Field(ge=1)
    tables: str
    """SHA-256 of tables.json."""
    facts: dict[str, Any] = {}
    """What the writer says of teacher, examples, tokenizer, temperature and method."""
    statistics: dict[str, float | int | None] = {}

    @property
    def parts(self) -> int:
        """The number of parts."""
        return -(-self.examples // self.examples_per_part)

    def in_part(self, number: int) -> int:
        """The number of examples in a part."""
        return min(self.examples_per_part, self.examples - number * self.examples_per_part)


class Part(NamedTuple):
    """An open part."""

    rows: NDArray[Any]
    """The index."""
    starts: NDArray[np.int64]
    """Where each example's block begins in the file, and where the last one ends."""


def part_files(folder: Path, number: int) -> tuple[Path, Path]:
    """A part's blocks and its index."""
    return folder / f"part-{number:05}.bin", folder / f"part-{number:05}.npy"


def read_description(folder: Path) -> Description:
    """The content of `logits.json`.

    Raises:
        UnderstudyError: it is missing or damaged.
    """
    path = folder / "logits.json"
    try:
        return Description.model_validate(_json(path))
    except ValidationError as error:
        first = error.errors()[0]
        raise UnderstudyError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def read_tables(folder: Path, description: Description) -> Tables:
    """The tables of a folder.

    Raises:
        UnderstudyError: they are missing, damaged, or not those of the description.
    """
    path = folder / "tables.json"
    value = _json(path)
    try:
        digest = sha256(canonical(value))
    except ValueError as error:  # NaN, or half a character
        raise UnderstudyError(f"{path}: is damaged: {error}") from None
    if digest != description.tables:
        raise UnderstudyError(f"{path}: is damaged: its digest is not the one in logits.json")
    try:
        tables = Tables.from_json(value)
    except UnderstudyError as error:
        raise UnderstudyError(f"{path}: {error}") from None
    if tables.vocabulary != description.vocabulary:
        raise UnderstudyError(f"{path}: has {tables.vocabulary:,} classes, logits.json {description.vocabulary:,}")
    return tables


def _json(path: Path) -> Any:
    try:
        if path.stat().st_size > LARGEST_JSON:
            raise UnderstudyError(f"{path}: is larger than {LARGEST_JSON >> 20} MiB")
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        raise UnderstudyError(f"{path}: is missing; this is no folder of cached logits") from None
    except (ValueError, RecursionError) as error:
        raise UnderstudyError(f"{path}: is damaged: {error}") from None


def open_part(folder: Path, number: int, examples: int) -> Part:
    """A part's index, with sizes checked.

    Raises:
        UnderstudyError: a file is missing, or sizes do not fit together.
    """
    blocks, index_path = part_files(folder, number)
    try:
        index = _index(index_path, examples)
        size = blocks.stat().st_size
        with blocks.open("rb") as stream:
            magic = stream.read(len(MAGIC))
    except FileNotFoundError as error:
        raise UnderstudyError(f"{error.filename}: is missing; write part {number} again") from None
    starts = len(MAGIC) + np.append(0, np.cumsum(index["bytes"].astype(np.int64)))
    if magic != MAGIC:
        raise UnderstudyError(f"{blocks}: is no part of cached logits")
    if size != starts[-1]:
        raise UnderstudyError(f"{blocks}: has {size:,} bytes, its index says {starts[-1]:,}; write part {number} again")
    return Part(index, starts)


def _index(path: Path, examples: int) -> NDArray[Any]:
    with path.open("rb") as stream:
        try:
            np.lib.format.read_magic(stream)
            shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(stream)
        except HEADER_ERRORS as error:
            raise UnderstudyError(f"{path}: is damaged: {type(error).__name__}: {error}") from None
        if shape != (examples,) or fortran_order or dtype != INDEX:
            raise UnderstudyError(f"{path}: is not the index of {examples:,} examples")
        content = stream.read(examples * INDEX.itemsize + 1)
    if len(content) != examples * INDEX.itemsize:
        raise UnderstudyError(f"{path}: is not as long as an index of {examples:,} examples")
    return np.frombuffer(content, INDEX)


def statistics(rows: NDArray[Any]) -> dict[str, float | int | None]:
    """Means by position, and sums, of the rows of all indices."""
    positions = int(rows["positions"].sum(dtype=np.int64))
    divergence = float(rows["divergence"].sum()) / max(1, positions)
    return {
        "positions": positions,
        "bytes": int(rows["bytes"].sum(dtype=np.int64)),
        "mean_entries": int(rows["entries"].sum(dtype=np.int64)) / max(1, positions),
        "mean_tail": float(rows["tail"].sum()) / max(1, positions),
        "mean_kl": divergence if np.isfinite(divergence) else None,
    }


def write_block(lengths: NDArray[np.int64], streams: bytes) -> bytes:
    """An example's block of the lengths of its positions and their bytes."""
    width = next(width for width in (1, 2, 4) if int(lengths.max(initial=0)) < 1 << 8 * width)
    return bytes([width]) + lengths.astype(f"<u{width}").tobytes() + streams


def read_block(block: NDArray[np.uint8], row: Any) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """The lengths of an example's positions and their bytes, from its block and its row of the index.

    Raises:
        UnderstudyError: the block is damaged.
    """
    if zlib.crc32(block.data) != row["crc32"]:
        raise UnderstudyError("a wrong checksum")
    positions, width = int(row["positions"]), int(block[0]) if len(block) else 0
    if width not in (1, 2, 4) or len(block) < 1 + positions * width:
        raise UnderstudyError("fewer bytes than its positions need")
    streams = block[1 + positions * width :]
    lengths = block[1 : 1 + positions * width].view(f"<u{width}").astype(np.int64)
    if int(lengths.sum()) != len(streams):
        raise UnderstudyError("positions of a wrong length")
    return lengths, streams
