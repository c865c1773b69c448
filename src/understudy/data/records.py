"""The file of a records object: Parquet, written in row groups that fit into memory.

Its columns are id, split, label and content, which is a task's first field, and one for each further field by its name.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from understudy.data.raw import NO_FIELDS, Split
from understudy.store.files import canonical, sha256

FILE = "records.parquet"
GROUP_BYTES, GROUP_ROWS = 64 * 2**20, 4096  # written in one row group
BATCH_ROWS = 256  # read in one batch


class Record(NamedTuple):
    """A row of the file; the id is the content's SHA-256. The source's name for it is not kept."""

    id: str
    split: Split
    label: str | None
    content: bytes
    others: Mapping[str, bytes] = NO_FIELDS


class Content(NamedTuple):
    """The part of a record that an example is made from."""

    split: Split
    label: str | None
    content: bytes
    others: Mapping[str, bytes] = NO_FIELDS


COLUMNS = ("id", "split", "label", "content")


def identity(content: bytes, fields: Mapping[str, bytes]) -> str:
    """The SHA-256 of a record: of its first field alone, if it has no further `fields`."""
    if not fields:
        return sha256(content)
    return sha256(canonical([sha256(content), {name: sha256(value) for name, value in fields.items()}]))


def write(path: Path, records: Iterable[Record], fields: Sequence[str] = ()) -> None:
    """Write all records, in their order. The same records are always the same bytes.

    Args:
        path: the file.
        records: the records.
        fields: the names of their fields after the first one.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    contents = [(name, pa.binary()) for name in ("content", *fields)]
    schema = pa.schema([*((name, pa.string()) for name in ("id", "split", "label")), *contents])
    with pq.ParquetWriter(
        path, schema, compression="zstd", use_dictionary=["split", "label"], write_statistics=False
    ) as writer:
        for group in _groups(records):
            columns = [
                _strings([record.id for record in group]),
                _strings([record.split for record in group]),
                _strings([record.label for record in group]),
                _column([record.content for record in group], pa.binary()),
                *(_column([record.others[name] for record in group], pa.binary()) for name in fields),
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
        for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=_contents(file)):
            rows = map(_content, batch.to_pylist())
            yield [row for row in rows if split in (None, row.split)]


def at(folder: Path, split: Split, indices: Sequence[int]) -> list[Content]:
    """Some records of a split, by their indices in it; only the row groups that contain them are read in full.

    Args:
        folder: the folder of a records object.
        split: its name.
        indices: counted from 0, in ascending order.
    """
    return [_content(row) for row in _rows_at(folder, split, indices)]


def ids_at(folder: Path, split: Split, indices: Sequence[int]) -> list[str]:
    """The ids of some records, by indices as in `at`."""
    return [row["id"] for row in _rows_at(folder, split, indices, ["id"])]


def set_aside(folder: Path) -> set[str]:
    """The ids of all records outside the training split."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(folder / FILE) as file:
        table = file.read(columns=["id", "split"]).to_pydict()
    return {id_ for id_, split in zip(table["id"], table["split"], strict=True) if split != "train"}


def _contents(file: Any) -> list[str]:
    """The columns that examples are made from."""
    return [name for name in file.schema_arrow.names if name != "id"]


def _content(row: dict[str, Any]) -> Content:
    fields = {name: value for name, value in row.items() if name not in COLUMNS}
    return Content(row["split"], row["label"], row["content"], fields)


def _rows_at(
    folder: Path, split: Split, indices: Sequence[int], columns: list[str] | None = None
) -> Iterator[dict[str, Any]]:
    """Rows of the file; by default with the columns that examples are made from."""
    import pyarrow.parquet as pq

    first = 0
    with pq.ParquetFile(folder / FILE) as file:
        for group in range(file.num_row_groups):
            splits = file.read_row_group(group, columns=["split"])["split"].to_pylist()
            rows = [row for row, row_split in enumerate(splits) if row_split == split]
            selected = [rows[index - first] for index in indices if first <= index < first + len(rows)]
            if selected:
                yield from file.read_row_group(group, columns=columns or _contents(file)).take(selected).to_pylist()
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

    encoded = [value.encode() for value in values if value is not None]
    assert len(encoded) in (0, len(values))  # a task has labels or it has none
    return _column(encoded, pa.string()) if encoded else pa.nulls(len(values), pa.string())


def _column(values: list[bytes], kind: Any) -> Any:
    """An Arrow column made of buffers: pa.array() would import pandas, which takes a second."""
    import numpy as np
    import pyarrow as pa

    ends = np.cumsum([0, *map(len, values)], dtype=np.int32)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(values))])
