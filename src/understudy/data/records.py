"""The file of a records object: Parquet, written in row groups that fit into memory."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from understudy.data.raw import Split

FILE = "records.parquet"
GROUP_BYTES, GROUP_ROWS = 64 * 2**20, 4096  # written in one row group
BATCH_ROWS = 256  # read in one batch


class Record(NamedTuple):
    """A row of the file; the id is the content's SHA-256. The source's name for it is not kept."""

    id: str
    split: Split
    label: str | None
    content: bytes


class Content(NamedTuple):
    """The part of a record that an example is made from."""

    split: Split
    label: str | None
    content: bytes


def write(path: Path, records: Iterable[Record]) -> None:
    """Write all records, in their order. The same records are always the same bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    text = pa.string()
    schema = pa.schema([("id", text), ("split", text), ("label", text), ("content", pa.binary())])
    with pq.ParquetWriter(
        path, schema, compression="zstd", use_dictionary=["split", "label"], write_statistics=False
    ) as writer:
        for group in _groups(records):
            columns = [
                _strings([record.id for record in group]),
                _strings([record.split for record in group]),
                _strings([record.label for record in group]),
                _column([record.content for record in group], pa.binary()),
            ]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))


def read(folder: Path, split: Split | None = None) -> Iterator[list[Content]]:
    """The contents of all records or of one split, in their order, batch by batch.

    Args:
        folder: the folder of a records object.
        split: None for all.
    """
    import pyarrow.parquet as pq

    with pq.ParquetFile(folder / FILE) as file:
        for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=list(Content._fields)):
            rows = map(Content, *(batch[name].to_pylist() for name in Content._fields))
            yield [row for row in rows if split in (None, row.split)]


def at(folder: Path, split: Split, places: Sequence[int]) -> list[Content]:
    """Some records of a split, by their indices in it; only the row groups that contain them are read in full.

    Args:
        folder: the folder of a records object.
        split: its name.
        places: counted from 0, in ascending order.
    """
    rows = _rows_at(folder, split, places, Content._fields)
    return [Content(row["split"], row["label"], row["content"]) for row in rows]


def ids_at(folder: Path, split: Split, places: Sequence[int]) -> list[str]:
    """The ids of some records, by indices as in `at`."""
    return [row["id"] for row in _rows_at(folder, split, places, ("id",))]


def _rows_at(folder: Path, split: Split, places: Sequence[int], columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    import pyarrow.parquet as pq

    first = 0
    with pq.ParquetFile(folder / FILE) as file:
        for group in range(file.num_row_groups):
            splits = file.read_row_group(group, columns=["split"])["split"].to_pylist()
            rows = [row for row, own in enumerate(splits) if own == split]
            own = [rows[place - first] for place in places if first <= place < first + len(rows)]
            if own:
                yield from file.read_row_group(group, columns=list(columns)).take(own).to_pylist()
            first += len(rows)


def _groups(records: Iterable[Record]) -> Iterator[list[Record]]:
    group: list[Record] = []
    size = 0
    for record in records:
        group.append(record)
        size += len(record.content)
        if size >= GROUP_BYTES or len(group) == GROUP_ROWS:
            yield group
            group, size = [], 0
    if group:
        yield group


def _strings(values: Sequence[str | None]) -> Any:
    import pyarrow as pa

    known = [value.encode() for value in values if value is not None]
    assert len(known) in (0, len(values))  # a task has labels or it has none
    return _column(known, pa.string()) if known else pa.nulls(len(values), pa.string())


def _column(values: list[bytes], kind: Any) -> Any:
    """An Arrow column made of buffers: pa.array() would import pandas, which takes a second."""
    import numpy as np
    import pyarrow as pa

    ends = np.cumsum([0, *map(len, values)], dtype=np.int32)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(values))])
