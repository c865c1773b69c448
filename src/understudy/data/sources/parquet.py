"""Records from Parquet files: a column for each field of the task, whose type fits the field's kind."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from understudy.data.raw import Broken, Raw, Reading, Split
from understudy.data.sources import files
from understudy.data.sources.arrow_rows import BATCH_ROWS, CHECKS, Row, RowLayout, first_line
from understudy.data.sources.arrow_types import holds_numbers
from understudy.data.sources.columns import split_of
from understudy.data.sources.conversations import Format, columns_of
from understudy.data.sources.source import DataSource
from understudy.data.sources.split_files import of_files
from understudy.data.sources.splits import sizes
from understudy.errors import InputError
from understudy.recipe.sources import SourceSection
from understudy.recipe.tasks import Kind
from understudy.store.files import Fingerprints


class ParquetSource(SourceSection):
    """A Parquet file, or a folder of them, with a column for each field."""

    type: Literal["parquet"]
    path: str
    image: str = "image"
    label: str = "label"
    columns: Mapping[str, str] = {}
    """Columns of fields whose column has another name than the field, and of optional ones."""
    format: Format = "messages"
    """How a row holds a conversation, if the task's records are conversations."""
    split: str | None = None
    """Column that names each row's split: train, validation or test."""
    follow_links: bool = False
    """Whether links may lead out of the path. Links inside it are always followed."""


def read(section: ParquetSource, fields: Mapping[str, Kind]) -> Reading:
    """A record per row, named file#row.

    A record's split is in the column `split` if the recipe names one, otherwise in the file's path.

    Raises:
        InputError: the recipe names a column for a field that the task lacks; a file lacks a column, has it twice, or
            has one of another type; or a path names two splits, or two paths the same one.
    """
    columns, conversation = columns_of(
        section.columns, fields, section.format, {"image": section.image, "label": section.label}
    )
    root, paths = files.find(_selection(section))
    by_name = {path.relative_to(root).as_posix(): path for path in paths}
    keys = {field: field for field in ("image", "label") if field not in section.columns}
    layout = RowLayout(fields, CHECKS, columns, conversation, keys, section.split)
    rows = {name: _count(layout, name, path) for name, path in by_name.items()}
    splits, notes = dict[str, Split](), list[str]()
    if section.split is None:
        splits, notes = of_files(f"data.source.path: {section.path}", list(by_name))
    split_sizes = sizes((splits.get(name), count) for name, count in rows.items())
    records = _records(layout, by_name, splits)
    return Reading(sum(rows.values()), records, tuple(notes), split_sizes)


def digest(section: ParquetSource, fingerprints: Fingerprints) -> str:
    """One SHA-256 over names and contents of the files."""
    return files.digest(_selection(section), fingerprints)


def _selection(section: ParquetSource) -> files.FileSelection:
    return files.FileSelection(
        section.path, "**/*.parquet", "*.parquet files", may_be_one=True, follow_links=section.follow_links
    )


def _damage() -> tuple[type[Exception], ...]:
    """The errors of pyarrow for damaged files; ValueError is a damaged string."""
    import pyarrow as pa

    return pa.ArrowException, ValueError, OSError


def _count(layout: RowLayout, name: str, path: Path) -> int:
    """The number of a file's rows, after a check of its columns."""
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_metadata(path)
        schema = metadata.schema.to_arrow_schema()
    except _damage():
        return 0  # _records reports the damage
    layout.check(name, schema)
    return int(metadata.num_rows)


def _records(layout: RowLayout, paths: dict[str, Path], splits: dict[str, Split]) -> Iterator[Raw | Broken]:
    import pyarrow.parquet as pq

    naming = dict[bool, str]()
    for name, path in paths.items():
        try:
            with pq.ParquetFile(path, page_checksum_verification=True) as file:
                labels = None
                if column := layout.columns.get("label"):
                    labels = _label_names(column, name, file.schema_arrow)
                    _check_naming(column, name, file.schema_arrow, labels, naming)
                for number, row in enumerate(_rows(layout.names & {*file.schema_arrow.names}, file)):
                    record = f"{name}#{number}"
                    split = (
                        splits.get(name) if layout.split is None else split_of(layout.split, record, row[layout.split])
                    )
                    yield layout.record(record, row, split, labels)
        except _damage() as error:
            yield Broken(name, f"is damaged or no Parquet file ({first_line(error)})")


def _label_names(column: str, name: str, schema: Any) -> list[str] | None:
    """The names that the datasets library gives to a column's whole numbers 0, 1, ...; None if the file has none.

    The library keeps its types as JSON beside the schema: {"info": {"features": {COLUMN: {"_type": "ClassLabel",
    "names": [...]}}}}. Without them the labels of a class folder that it has read would be numbers.
    """
    if not holds_numbers(schema.field(column).type):
        return None
    try:
        features = json.loads((schema.metadata or {}).get(b"huggingface", b"null"))
    except ValueError as error:
        raise InputError(
            f"data.source.label: {name}: the datasets library's metadata is not JSON, and may name the "
            f"numbers in {column}. Write the file again, or with labels in words."
        ) from error
    for key in ("info", "features", column, "names"):
        features = features.get(key) if isinstance(features, dict) else None
    return [str(name) for name in features] if isinstance(features, list) else None


def _check_naming(column: str, name: str, schema: Any, labels: list[str] | None, naming: dict[bool, str]) -> None:
    """Reject named whole numbers beside unnamed ones: 0 and cat would be two labels.

    Args:
        column: the column of labels.
        name: the file's name.
        schema: the file's schema.
        labels: the names of its numbers.
        naming: the first file with and the first without names, of those so far; this one is added.
    """
    if not holds_numbers(schema.field(column).type):
        return
    naming.setdefault(labels is not None, name)
    if len(naming) > 1:
        raise InputError(
            f"data.source.label: {naming[False]} does not name its labels as {naming[True]} does: the "
            f"whole numbers in its {column} have no names. Write both files with the same type of {column}."
        )


def _rows(columns: set[str], file: Any) -> Iterator[Row]:
    for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=sorted(columns)):
        yield from batch.to_pylist()


SOURCE = DataSource(ParquetSource, None, read, digest)
