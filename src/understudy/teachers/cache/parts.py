"""Writing a folder of cached logits in parts, by any number of processes, resumed after a kill.

A part covers a fixed range of examples, and its bytes depend on its content alone. It is written aside and renamed into
place, its index last: a part that has an index is complete.
"""

import io
import zlib
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from understudy.errors import UnderstudyError
from understudy.store.files import canonical, flush, sha256, write_json, write_whole
from understudy.teachers.cache.codec import encode
from understudy.teachers.cache.layout import (
    INDEX,
    MAGIC,
    Description,
    open_part,
    part_files,
    read_description,
    statistics,
    write_block,
)
from understudy.teachers.cache.sparse import Sparse
from understudy.teachers.cache.tables import Tables

EXAMPLES_PER_PART = 1024


def begin(folder: Path, tables: Tables, examples: int, examples_per_part: int = EXAMPLES_PER_PART) -> None:
    """Write the files that all parts share; nothing changes if they are there already.

    Raises:
        UnderstudyError: the folder has parts of another shape or of other tables.
    """
    content = canonical(tables.to_json())
    description = Description(
        format=1,
        complete=False,
        vocabulary=tables.vocabulary,
        examples=examples,
        examples_per_part=examples_per_part,
        tables=sha256(content),
    )
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "logits.json").exists():
        present = read_description(folder)
        if present.model_copy(update={"complete": False, "facts": {}, "statistics": {}}) != description:
            raise UnderstudyError(f"{folder}: has logits of other examples or tables. Write into another folder.")
        return
    write_whole(folder / "tables.json", content)
    write_json(folder / "logits.json", description.model_dump())
    flush(folder)


def missing(folder: Path) -> list[int]:
    """The numbers of the parts that are not complete."""
    description = read_description(folder)
    return [number for number in range(description.parts) if not _is_complete(folder, description, number)]


def _is_complete(folder: Path, description: Description, number: int) -> bool:
    try:
        open_part(folder, number, description.in_part(number))
    except UnderstudyError:
        return False
    return True


def write_part(
    folder: Path,
    number: int,
    counts: NDArray[np.int64],
    sparse: Sparse,
    tables: Tables,
    divergences: Tensor | None = None,
) -> None:
    """Write one part.

    Args:
        folder: one that was begun.
        number: of the part.
        counts: (examples,) positions of each example of the part.
        sparse: of all their positions, in order.
        tables: those of the folder.
        divergences: KL(teacher || sparse) in nats of each position, for the statistics.

    Raises:
        UnderstudyError: the distributions do not fit the tables, or the disk is full.
    """
    assert len(counts) == read_description(folder).in_part(number)
    assert counts.sum() == len(sparse.ids)
    blob, lengths = encode(sparse, tables)
    ends = np.append(0, np.cumsum(lengths))
    firsts = np.append(0, np.cumsum(counts))
    blocks = [write_block(lengths[first:end], blob[ends[first] : ends[end]]) for first, end in pairwise(firsts)]
    index = _sizes(counts, blocks)
    index["entries"] = _sums((sparse.ids >= 0).sum(-1), firsts)
    index["tail"] = _sums(sparse.tail.double().exp(), firsts)
    index["divergence"] = np.nan if divergences is None else _sums(divergences.double(), firsts)
    blocks_path, index_path = part_files(folder, number)
    write_whole(blocks_path, MAGIC + b"".join(blocks))
    stream = io.BytesIO()
    np.lib.format.write_array(stream, index, version=(1, 0), allow_pickle=False)
    flush(folder)
    write_whole(index_path, stream.getvalue())
    flush(folder)


def _sizes(counts: NDArray[np.int64], blocks: list[bytes]) -> NDArray[Any]:
    """An index without its sums."""
    index = np.zeros(len(counts), INDEX)
    index["positions"] = counts
    index["bytes"] = [len(block) for block in blocks]
    index["crc32"] = [zlib.crc32(block) for block in blocks]
    return index


def _sums(values: Tensor, firsts: NDArray[np.int64]) -> NDArray[Any]:
    """Sums of values by example."""
    array = values.cpu().numpy()
    return np.array([array[first:end].sum() for first, end in pairwise(firsts)])


def finish(folder: Path, facts: Mapping[str, Any]) -> dict[str, float | int | None]:
    """Mark a folder of all its parts as complete, and return its statistics.

    Args:
        folder: one that was begun.
        facts: JSON values by name, of teacher, examples, tokenizer, temperature and method.

    Raises:
        UnderstudyError: a part is missing.
    """
    description = read_description(folder)
    indices = [open_part(folder, number, description.in_part(number)).rows for number in range(description.parts)]
    index = np.concatenate(indices) if indices else np.zeros(0, INDEX)
    measured = statistics(index)
    for interrupted in folder.glob(".*"):  # writes that a kill ended
        interrupted.unlink()
    update = {"complete": True, "facts": dict(facts), "statistics": measured}
    write_json(folder / "logits.json", description.model_copy(update=update).model_dump())
    flush(folder)
    return measured
