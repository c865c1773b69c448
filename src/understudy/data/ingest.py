"""A source's records, checked and split once and for all.

The split hangs on each record's content alone (its SHA-256), so it is the same on every machine, equal content lies on
one side, and records that come later move no other. What the source itself calls test or validation stays that.
"""

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from understudy.data.raw import SPLITS, Broken, Raw, Split
from understudy.data.sources.registry import read
from understudy.errors import InputError
from understudy.recipe import Task
from understudy.recipe.data import Data
from understudy.store.files import sha256, write_json

Progress = Callable[[int, int], None]

GROUP_BYTES, GROUP_ROWS = 64 * 2**20, 4096


@dataclass(slots=True, frozen=True)
class Row:
    """A record whose content waits in the spool."""

    id: str
    name: str
    label: str | None
    own: Split | None
    start: int
    length: int


def ingest(data: Data, task: Task, folder: Path, progress: Progress) -> None:
    """Write the files of a `records` object.

    Args:
        data: the recipe's section.
        task: the recipe's task.
        folder: an empty folder.
        progress: told how many records are done, of at most how many.

    Raises:
        InputError: the source cannot be read, a record is damaged (and on_error is fail), or the splits do not fit.
    """
    with tempfile.TemporaryFile(dir=folder) as spool:
        rows, skipped = _gather(data, task, spool, progress)
        rows.sort(key=lambda row: row.name)
        splits, moved = assign([(row.id, row.own) for row in rows], data.validation, data.test)
        labels = _labels(rows, task)
        _check(data, rows, splits, labels, skipped)
        _write(folder / "records.parquet", rows, splits, spool)
    counts = Counter(splits)
    facts = {
        "task": task,
        "counts": {split: counts[split] for split in SPLITS},
        "skipped": [broken._asdict() for broken in sorted(skipped)],
        "moved": moved,
        "labels": labels,
    }
    write_json(folder / "records.json", facts)


def assign(records: Sequence[tuple[str, Split | None]], validation: float, test: float) -> tuple[list[Split], int]:
    """Split records by content.

    Args:
        records: each one's SHA-256, and the split that the source itself put it into.
        validation: share of what the source does not call test, unless it has its own validation split.
        test: share of all, unless the source has its own test split.

    Returns:
        Each record's split, and how many left the one they would have had because equal content lies in another.
    """
    own = {split for _, split in records}
    test = 0 if "test" in own else test
    validation = 0 if "validation" in own else validation
    wanted = [_by_hash(id_, validation, test) if split in (None, "train") else split for id_, split in records]
    sides: dict[str, Split] = {}
    for (id_, _), split in zip(records, wanted, strict=True):
        sides[id_] = max(split, sides.get(id_, split), key=SPLITS.index)
    splits = [sides[id_] for id_, _ in records]
    return splits, sum(before != after for before, after in zip(wanted, splits, strict=True))


def _by_hash(id_: str, validation: float, test: float) -> Split:
    share = int(id_[:16], 16) / 2**64
    return "test" if share < test else "validation" if share < test + validation else "train"


def _gather(data: Data, task: Task, spool: IO[bytes], progress: Progress) -> tuple[list[Row], list[Broken]]:
    rows, skipped, start = list[Row](), list[Broken](), 0
    total, records = read(data.source)
    for done, record in enumerate(records, 1):
        checked = _checked(record, task)
        if isinstance(checked, Raw):
            spool.write(checked.content)
            rows.append(
                Row(sha256(checked.content), checked.name, checked.label, checked.split, start, len(checked.content))
            )
            start += len(checked.content)
        elif data.on_error == "skip" or checked.reason == EMPTY:
            skipped.append(checked)
        else:
            raise InputError(
                f"{_place(data)}: {checked.name} {checked.reason}. Repair or remove it, "
                "or set data.on_error: skip to leave such records out and count them."
            )
        progress(done, max(done, total))
    return rows, skipped


EMPTY = "is empty"  # a document without a byte: left out and counted, but nothing is wrong with it


def _checked(record: Raw | Broken, task: Task) -> Raw | Broken:
    if isinstance(record, Broken):
        return record
    try:
        if task == "causal-lm":
            record.content.decode()
            return record if record.content else Broken(record.name, EMPTY)
        from understudy.data.images import decode

        decode(record.content)
    except UnicodeDecodeError as error:
        return Broken(record.name, f"is not UTF-8 text (byte {error.start})")
    except ValueError as error:
        return Broken(record.name, str(error))
    return record


def _place(data: Data) -> str:
    path = getattr(data.source, "path", None)
    return f"data.source.path: {path}" if path else f"data.source.type: {data.source.type}"


def _labels(rows: list[Row], task: Task) -> list[str] | None:
    """Sorted; whole numbers by value, so that a class's index is its number where they count from 0."""
    if task == "causal-lm":
        return None
    labels = {str(row.label) for row in rows}
    numbers = all(label.removeprefix("-").isdecimal() for label in labels)
    return sorted(labels, key=lambda label: (int(label), label) if numbers else (0, label))


def _check(
    data: Data, rows: list[Row], splits: list[Split], labels: list[str] | None, skipped: Sequence[Broken]
) -> None:
    place = _place(data)
    for split, fix in (("train", "data.test and data.validation take"), ("test", "data.test leaves")):
        if split not in splits:
            raise InputError(
                f"{place}: no record is left for {split}: {len(rows)} were read, {len(skipped)} skipped. "
                f"Give more data, or look at what {fix}."
            )
    if labels is None:
        return
    if len(labels) < 2:
        raise InputError(f"{place}: all images have the label {labels[0]}. A classifier needs two labels or more.")
    seen = {row.label for row, split in zip(rows, splits, strict=True) if split == "train"}
    for held_out in ("test", "validation"):
        unseen = {row.label for row, split in zip(rows, splits, strict=True) if split == held_out} - seen
        if unseen:
            names = ", ".join(label for label in labels if label in unseen)
            raise InputError(
                f"{place}: the {held_out} split has labels that training never saw: {names}. "
                "Remove them or add training images of them."
            )


def _write(path: Path, rows: list[Row], splits: list[Split], spool: IO[bytes]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    text = pa.string()
    schema = pa.schema([("id", text), ("name", text), ("split", text), ("label", text), ("content", pa.binary())])
    with pq.ParquetWriter(
        path, schema, compression="zstd", use_dictionary=["split", "label"], write_statistics=False
    ) as writer:
        for group in _groups(zip(rows, splits, strict=True)):
            columns = [
                _strings([row.id for row, _ in group]),
                _strings([row.name for row, _ in group]),
                _strings([split for _, split in group]),
                _strings([row.label for row, _ in group]),
                _column([_content(row, spool) for row, _ in group], pa.binary()),
            ]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))


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


def _content(row: Row, spool: IO[bytes]) -> bytes:
    spool.seek(row.start)
    return spool.read(row.length)


def _groups(rows: Iterator[tuple[Row, Split]]) -> Iterator[list[tuple[Row, Split]]]:
    """Row groups that fit into memory."""
    group: list[tuple[Row, Split]] = []
    size = 0
    for row, split in rows:
        group.append((row, split))
        size += row.length
        if size >= GROUP_BYTES or len(group) == GROUP_ROWS:
            yield group
            group, size = [], 0
    if group:
        yield group
