"""Records from CSV files with a header: a column for each field of the task, all of them text.

The dialect is that of RFC 4180: commas, double quotes, and line breaks inside quotes.
"""

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from understudy.data.raw import Broken, Raw, Reading, Split
from understudy.data.sources import files
from understudy.data.sources.columns import Columns, check_named, of_fields, split_of
from understudy.data.sources.source import DataSource
from understudy.data.sources.split_files import of_files
from understudy.data.sources.splits import sizes
from understudy.recipe.sources import SourceSection
from understudy.recipe.tasks import Kind
from understudy.store.files import Fingerprints

LONGEST = 2**31 - 1
"""Characters of a value; csv's own limit is 2**17, less than a long document."""


class Line(NamedTuple):
    """A row as it is in the file."""

    name: str
    """file:line, counted from 1; the first of several lines."""
    values: Sequence[str]
    """Bytes that are not UTF-8 are surrogates (PEP 383)."""


class CsvSource(SourceSection):
    """A CSV file, or a folder of them, whose header names a column for each field."""

    type: Literal["csv"]
    path: str
    columns: Mapping[str, str] = {}
    """Columns of fields whose column has another name than the field, and of optional ones."""
    split: str | None = None
    """Column that names each row's split: train, validation or test."""
    follow_links: bool = False
    """Whether links may lead out of the path. Links inside it are always followed."""


def read(section: CsvSource, fields: Mapping[str, Kind]) -> Reading:
    """A record per row, named file:line.

    A record's split is in the column `split` if the recipe names one, otherwise in the file's path.

    Raises:
        InputError: the recipe names a column for a field that the task lacks; a file lacks a column or has it twice;
            or a path names two splits, or two paths the same one.
    """
    columns = of_fields(section.columns, fields)
    root, found = files.find(_wanted(section))
    named = {path.relative_to(root).as_posix(): path for path in found}
    rows = {name: _count(section, columns, name, path) for name, path in named.items()}
    splits, notes = dict[str, Split](), list[str]()
    if section.split is None:
        splits, notes = of_files(f"data.source.path: {section.path}", list(named))
    split_sizes = sizes((splits.get(name), count) for name, count in rows.items())
    return Reading(sum(rows.values()), _records(section, columns, named, splits), tuple(notes), split_sizes)


def digest(section: CsvSource, fingerprints: Fingerprints) -> str:
    """One SHA-256 over names and contents of the files."""
    return files.digest(_wanted(section), fingerprints)


def _wanted(section: CsvSource) -> files.Wanted:
    return files.Wanted(section.path, "**/*.csv", "*.csv files", may_be_one=True, follow_links=section.follow_links)


def _count(section: CsvSource, columns: Columns, name: str, path: Path) -> int:
    """The number of a file's rows, after a check of its columns."""
    lines = _lines(name, path)
    header = _header(name, lines)
    if isinstance(header, Broken):
        return 0  # _records reports it
    for field, column in columns.items():
        check_named(f"columns.{field}", name, column, header)
    if section.split is not None:
        check_named("split", name, section.split, header)
    return sum(1 for _ in lines)


def _records(
    section: CsvSource, columns: Columns, found: Mapping[str, Path], splits: Mapping[str, Split]
) -> Iterator[Raw | Broken]:
    for name, path in found.items():
        lines = _lines(name, path)
        header = _header(name, lines)
        if isinstance(header, Broken):
            yield header
            continue
        for line in lines:
            if isinstance(line, Broken):
                yield line
            elif len(line.values) != len(header):
                yield Broken(line.name, f"has {len(line.values)} values, and the header has {len(header)}")
            else:
                row = dict(zip(header, line.values, strict=True))
                split = splits.get(name)
                if section.split is not None:
                    split = split_of(section.split, line.name, row[section.split])
                yield _record(columns, line.name, row, split)


def _record(columns: Columns, name: str, row: Mapping[str, str], split: Split | None) -> Raw | Broken:
    label = row[columns["label"]] if "label" in columns else None
    if label is not None and not (label and _is_utf_8(label)):
        return Broken(name, f"column {columns['label']} is {'not UTF-8 text' if label else 'empty'}")
    # Bytes that are not UTF-8 come back as they are, for the task to name them.
    contents = {
        field: row[column].encode(errors="surrogateescape") for field, column in columns.items() if field != "label"
    }
    (_, first), *others = contents.items()
    return Raw(name, first, label, split, dict(others))


def _header(name: str, lines: Iterator[Line | Broken]) -> Sequence[str] | Broken:
    """The names of a file's columns: its first row."""
    first = next(lines, Broken(name, "has no header"))
    if isinstance(first, Line) and not _is_utf_8("".join(first.values)):
        return Broken(name, "is not UTF-8 text")
    return first.values if isinstance(first, Line) else first


def _lines(name: str, path: Path) -> Iterator[Line | Broken]:
    """The rows of a file; blank lines are none."""
    csv.field_size_limit(LONGEST)
    try:
        with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            reader = csv.reader(file, strict=True)
            while True:
                place = f"{name}:{reader.line_num + 1}"
                try:
                    values = next(reader)
                except StopIteration:
                    return
                except csv.Error as error:
                    yield Broken(place, f"is not CSV ({error})")
                else:
                    if values:
                        yield Line(place, values)
    except OSError as error:
        yield Broken(name, f"cannot be read ({error.strerror})")


def _is_utf_8(text: str) -> bool:
    """Whether it was UTF-8 in the file, without a zero byte, as UTF-16 has them."""
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


SOURCE = DataSource(CsvSource, None, read, digest, frozenset({"text", "optional text", "label"}))
