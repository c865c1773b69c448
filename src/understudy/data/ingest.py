"""Ingestion of a source's records: they are checked, split and put in a fixed order.

Their order, like their split, is that of their contents: the same records give the same bytes, whatever their files,
names and order in the source.
"""

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol, cast

from understudy.data.copies import distinct_counts, on_copies
from understudy.data.labels import canonical, check_shared, lookalikes
from understudy.data.raw import EMPTY, SPLITS, Broken, Checked, Raw, Reading, Split
from understudy.data.records import FILE, Record, identity, set_aside, write
from understudy.data.sources.registry import read
from understudy.data.split import assign, keep_in_training
from understudy.errors import InputError
from understudy.recipe import TaskName
from understudy.recipe.data import Data, DataSet
from understudy.recipe.tasks import Kind, load
from understudy.store.files import read_json, write_json

Progress = Callable[[int, int], None]

NAMED = 10
"""Maximum number of damaged records in an error: reading ends there, since systematic damage is soon clear."""


@dataclass(slots=True, frozen=True)
class Row:
    """A record whose fields are in the spool, a file, since all of them together need not fit into memory."""

    id: str
    key: str
    """It decides the split: equal for copies of a document that differ only in line ends and byte order mark."""
    label: str | None
    source_split: Split | None
    start: int
    length: int
    others: Mapping[str, int]
    """The lengths of the fields after the first one, which follow it in the spool."""


class Checks(Protocol):
    """A task, as ingestion sees it."""

    NOUN: str
    LABELLED: bool
    FIELDS: Mapping[str, Kind]

    def check(self, record: Raw) -> Checked | Broken:
        """Check a record, and give it the key by which copies of it are in one split.

        A text is checked by `documents.check_document`. A record without content is Broken with the reason EMPTY, which
        is skipped and counted whatever data.on_error is.

        Raises:
            UnicodeDecodeError: a text is not UTF-8.
            ValueError: the record is damaged; the message says how.
        """


def ingest(data: Data, name: TaskName, folder: Path, progress: Progress) -> tuple[str, ...]:
    """Write the files of a `records` object.

    Args:
        data: the recipe's section.
        name: the recipe's task.
        folder: an empty folder.
        progress: called with the number of records done, and the most that there are.

    Returns:
        Notes on unexpected ways in which the source's names and folders are read.

    Raises:
        InputError: the source cannot be read, a record is damaged (and on_error is fail), or the splits do not fit.
    """
    task, location = cast("Checks", load(name)), _location(data, "data")
    with tempfile.TemporaryFile(dir=folder) as spool:
        reading = read(data.source, task.FIELDS)
        rows, skipped, notes = _gather(reading, data, location, task, spool, progress)
        rows.sort(key=lambda row: (row.id, row.label or ""))  # equal content may have two labels
        keyed_splits = [(row.key, row.source_split) for row in rows]
        splits, moved = assign(keyed_splits, data.validation, data.test)
        _check_splits(location, splits, skipped)
        labels = _labels(rows) if task.LABELLED else None
        if labels is not None:
            check_shared(location, data.source, len(labels), len(rows))
        splits, rare = keep_in_training(keyed_splits, [row.label for row in rows], splits)
        _check_splits(location, splits, skipped)
        if labels is not None:
            _check_labels(location, task.NOUN, rows, splits, labels)
        write(folder / FILE, _records(rows, splits, spool), list(rows[0].others))
    counts, distinct = Counter(splits), distinct_counts([row.key for row in rows], splits)
    facts = {
        "task": name,
        "counts": {split: counts[split] for split in SPLITS},
        "skipped": [broken._asdict() for broken in sorted(skipped)],
        "moved": moved,
        "labels": labels,
        "notes": [*notes, *_on_labels(task.NOUN, labels or (), rare), *on_copies(task.NOUN, counts, distinct)],
    }
    write_json(folder / "records.json", facts | ({"distinct": distinct} if distinct else {}))
    return reading.notes


def ingest_beside(
    data: DataSet, section: str, name: TaskName, records: Path, folder: Path, progress: Progress
) -> tuple[str, ...]:
    """Write the files of a `records` object of further data: all of it is in the training split.

    Records of the source's own validation or test split are left out, and so are those that `data` sets aside.

    Args:
        data: the recipe's section.
        section: its path in the recipe.
        name: the recipe's task.
        records: the records of the section `data`, whose labels these may have.
        folder: an empty folder.
        progress: called with the number of records done, and the most that there are.

    Returns:
        Notes on unexpected ways in which the source's names and folders are read.

    Raises:
        InputError: the source cannot be read, a record is damaged (and on_error is fail), has a label that `data` has
            not, or none is left.
    """
    task, location = cast("Checks", load(name)), _location(data, section)
    labels, held_out = read_json(records / "records.json")["labels"], set_aside(records)
    with tempfile.TemporaryFile(dir=folder) as spool:
        with _errors_of(section):
            reading = read(data.source, task.FIELDS)
        rows, skipped, notes = _gather(reading, data, location, task, spool, progress)
        training_rows = [
            row for row in rows if row.source_split in (None, "train") and not {row.id, row.key} & held_out
        ]
        training_rows.sort(key=lambda row: (row.id, row.label or ""))
        unknown = sorted({str(row.label) for row in training_rows}.difference(labels)) if labels is not None else []
        if unknown:
            raise InputError(f"{location}: has labels that the records of `data` lack: {', '.join(unknown[:10])}")
        if not training_rows:
            raise InputError(
                f"{location}: no record is left: {len(rows)} were read, and all are in the validation or test split of "
                "`data`"
            )
        splits: list[Split] = ["train"] * len(training_rows)
        write(folder / FILE, _records(training_rows, splits, spool), list(training_rows[0].others))
    left_out = len(rows) - len(training_rows)
    if left_out:
        notes.append(f"{_counted(left_out, task.NOUN)} left out, which a validation or test split has")
    facts = {
        "task": name,
        "counts": {split: len(training_rows) if split == "train" else 0 for split in SPLITS},
        "skipped": [broken._asdict() for broken in sorted(skipped)],
        "moved": 0,
        "labels": labels,
        "notes": notes,
    }
    write_json(folder / "records.json", facts)
    return reading.notes


@contextmanager
def _errors_of(section: str) -> Iterator[None]:
    """Put a section's path into errors of its source, which begin with that of the section `data`."""
    try:
        yield
    except InputError as error:
        lines = (line.replace("data.source", f"{section}.source", 1) for line in str(error).splitlines())
        raise InputError("\n".join(lines)) from error


def _gather(
    reading: Reading, data: DataSet, location: str, task: Checks, spool: IO[bytes], progress: Progress
) -> tuple[list[Row], list[Broken], list[str]]:
    """Spool the valid records; returns them, the skipped ones, and notes on their contents."""
    rows, skipped, damaged, start, noted = list[Row](), list[Broken](), list[Broken](), 0, Counter[str]()
    for done, record in enumerate(_until_error(reading.records, damaged), 1):
        checked = record if isinstance(record, Broken) else _checked(record, task)
        if isinstance(checked, Checked):
            row = _row(checked, start, spool)
            rows.append(row)
            start += row.length + sum(row.others.values())
            noted[checked.note] += bool(checked.note)
        elif data.on_error == "skip" or checked.reason == EMPTY:
            skipped.append(checked)
        else:
            damaged.append(checked)
            if len(damaged) > NAMED:
                break
        progress(done, max(done, reading.total))
    if damaged:
        raise _refusal(location, damaged)
    if not rows and not skipped:
        raise InputError(f"{location}: has no records. Give a source that has some.")
    notes = [f"{_counted(count, task.NOUN)} {note}" for note, count in noted.items() if note]
    return rows, skipped, notes


def _row(checked: Checked, start: int, spool: IO[bytes]) -> Row:
    """Write a record's fields to the end of the spool."""
    _, content, label, source_split, fields = checked.record
    length, lengths = spool.write(content), {name: spool.write(value) for name, value in fields.items()}
    label = None if label is None else canonical(label)
    return Row(identity(content, fields), checked.key, label, source_split, start, length, lengths)


def _counted(count: int, noun: str) -> str:
    return f"1 {noun} is" if count == 1 else f"{count:,} {noun}s are"


def _until_error(records: Iterable[Raw | Broken], damaged: Sequence[Broken]) -> Iterator[Raw | Broken]:
    """A source's records; if some are damaged, an error of the source only ends them: the damaged ones are named."""
    try:
        yield from records
    except InputError:
        if not damaged:
            raise


def _refusal(location: str, damaged: Sequence[Broken]) -> InputError:
    """An error that names damaged records, at most NAMED, so that one run is enough to find them all."""
    named = "; ".join(f"{record.name} {record.reason}" for record in damaged[:NAMED])
    many = f"{len(damaged)} records are damaged" if len(damaged) <= NAMED else f"the first {NAMED} damaged records"
    start, them = (f"{location}: ", "it") if len(damaged) == 1 else (f"{location}: {many}: ", "them")
    return InputError(
        f"{start}{named}. Repair or remove {them}, or set {location.partition('.source')[0]}.on_error: skip to "
        "leave such records out and count them."
    )


def _checked(record: Raw, task: Checks) -> Checked | Broken:
    try:
        return task.check(record)
    except UnicodeDecodeError as error:
        return Broken(record.name, f"is not UTF-8 text (byte {error.start})")
    except ValueError as error:
        return Broken(record.name, str(error))


def _location(data: DataSet, section: str) -> str:
    source_path = getattr(data.source, "path", None)
    return f"{section}.source.path: {source_path}" if source_path else f"{section}.source.type: {data.source.type}"


def _labels(rows: list[Row]) -> list[str]:
    """The labels, sorted; whole numbers by value, so that a class's index is its number if they count from 0."""
    labels = {str(row.label) for row in rows}
    numbers = all(label.removeprefix("-").isdecimal() for label in labels)
    return sorted(labels, key=lambda label: (int(label), label) if numbers else (0, label))


def _check_splits(location: str, splits: list[Split], skipped: Sequence[Broken]) -> None:
    for split, fix in (("train", "lower data.test or data.validation"), ("test", "raise data.test")):
        if split not in splits:
            raise InputError(
                f"{location}: no record is left for {split}: {len(splits)} were read, {len(skipped)} skipped. "
                f"Give more data, or {fix}."
            )


def _check_labels(location: str, noun: str, rows: list[Row], splits: list[Split], labels: list[str]) -> None:
    if len(labels) < 2:
        raise InputError(f"{location}: all {noun}s have the label {labels[0]}. A classifier needs two labels or more.")
    by_split: dict[Split, set[str | None]] = {split: set() for split in SPLITS}
    for row, split in zip(rows, splits, strict=True):
        by_split[split].add(row.label)
    for held_out in ("test", "validation"):
        unseen = by_split[held_out] - by_split["train"]
        if unseen:
            names = ", ".join(label for label in labels if label in unseen)
            raise InputError(
                f"{location}: the {held_out} split has labels that the training split lacks: {names}. "
                f"Remove them or add training {noun}s of them."
            )


def _on_labels(noun: str, labels: Sequence[str], rare: Sequence[str]) -> list[str]:
    """Notes on the labels; only keep_in_training() has put a record of the rare ones into training."""
    notes = lookalikes(labels)
    if rare:
        names = ", ".join(rare[:3]) + (", ..." if len(rare) > 3 else "")
        notes.append(f"one {noun} of each of these labels was put into training, which had none of them: {names}")
    return notes


def _records(rows: list[Row], splits: list[Split], spool: IO[bytes]) -> Iterator[Record]:
    """The rows with their contents, one at a time."""
    for row, split in zip(rows, splits, strict=True):
        spool.seek(row.start)
        content = spool.read(row.length)
        fields = {name: spool.read(length) for name, length in row.others.items()}
        yield Record(row.id, split, row.label, content, fields)
