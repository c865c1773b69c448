"""Records from CSV files with a header: a column for each field of the task, all of them text.

The dialect is that of RFC 4180: commas, double quotes, and line breaks inside quotes.
"""

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from understudy.data.raw import Broken, Raw, Reading, Split
from understudy.data.sources import files
from understudy.data.sources.columns import Columns, check_named, of_fields, split_of
from understudy.data.sources.source import DataSource
from understudy.data.sources.split_files import of_files
from understudy.data.sources.splits import sizes
from understudy.errors import InputError
from understudy.recipe.sources import SourceSection
from understudy.recipe.tasks import Kind
from understudy.store.files import Fingerprints

MAX_CHARACTERS = 2**31 - 1
"""Of a value; csv's default limit is 2**17, less than a long document."""
SEPARATORS = re.compile("[;\t|]")
"""Other separators than commas, which a header of one column has."""
UNCLOSED = "unexpected end of data"
"""csv's error for a file that ends inside quotes."""


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
    root, matches = files.find(_selection(section))
    paths = {path.relative_to(root).as_posix(): path for path in matches}
    rows = {name: _count(section, columns, name, path) for name, path in paths.items()}
    splits, notes = dict[str, Split](), list[str]()
    if section.split is None:
        splits, notes = of_files(f"data.source.path: {section.path}", list(paths))
    split_sizes = sizes((splits.get(name), count) for name, count in rows.items())
    return Reading(sum(rows.values()), _records(section, columns, paths, splits), tuple(notes), split_sizes)


def digest(section: CsvSource, fingerprints: Fingerprints) -> str:
    """One SHA-256 over names and contents of the files."""
    return files.digest(_selection(section), fingerprints)


def _selection(section: CsvSource) -> files.FileSelection:
    return files.FileSelection(
        section.path, "**/*.csv", "*.csv files", may_be_one=True, follow_links=section.follow_links
    )


def _count(section: CsvSource, columns: Columns, name: str, path: Path) -> int:
    """The number of a file's rows, after a check of its columns."""
    lines = _lines(name, path)
    header = _header(name, lines)
    if isinstance(header, Broken):
        return 0  # _records reports it
    if len(header) == 1 and (separator := SEPARATORS.search(header[0])):
        raise InputError(f"data.source.path: {name} separates columns by {separator[0]!r}; write it again with commas")
    for field, column in columns.items():
        check_named(f"columns.{field}", name, column, header)
    if section.split is not None:
        check_named("split", name, section.split, header)
    return sum(1 for _ in lines)


def _records(
    section: CsvSource, columns: Columns, paths: Mapping[str, Path], splits: Mapping[str, Split]
) -> Iterator[Raw | Broken]:
    for name, path in paths.items():
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
    (_, first), *further_fields = contents.items()
    return Raw(name, first, label, split, dict(further_fields))


def _header(name: str, lines: Iterator[Line | Broken]) -> Sequence[str] | Broken:
    """The names of a file's columns: its first row."""
    first = next(lines, Broken(name, "has no header"))
    if isinstance(first, Line) and not _is_utf_8("".join(first.values)):
        return Broken(name, "is not UTF-8 text")
    return first.values if isinstance(first, Line) else first


def _lines(name: str, path: Path) -> Iterator[Line | Broken]:
    """The rows of a file, without blank lines."""
    csv.field_size_limit(MAX_CHARACTERS)
    try:
        with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            reader = csv.reader(file, strict=True)
            while True:
                first = reader.line_num + 1
                try:
                    values = next(reader)
                except StopIteration:
                    return
                except csv.Error as error:
                    if str(error) == UNCLOSED:  # whatever on_error says: these may be most of the records
                        raise InputError(
                            f"data.source.path: {name}:{first}: a double quote in this row is never closed, so lines "
                            f"{first} to {reader.line_num} are no records; close it, or write two"
                        ) from error
                    yield Broken(f"{name}:{first}", f"is not CSV ({error})")
                else:
                    if values:
                        yield Line(f"{name}:{first}", values)
    except OSError as error:
        yield Broken(name, f"cannot be read ({error.strerror})")


def _is_utf_8(text: str) -> bool:
    """Whether the bytes in the file were UTF-8, and none of them zero, as in UTF-16."""
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


SOURCE = DataSource(CsvSource, None, read, digest, frozenset({"text", "optional text", "label"}))
