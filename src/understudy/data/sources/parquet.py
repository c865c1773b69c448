"""Records from Parquet files: a column for each field of the task, whose type fits the field's kind.

Images are encoded bytes, or the {bytes, path} of the datasets library. The turns of a conversation are a list of
structs.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from understudy.data.raw import Broken, Raw, Reading, Split
from understudy.data.sources import files
from understudy.data.sources.arrow_types import (
    decoded,
    holds_images,
    holds_labels,
    holds_numbers,
    holds_text,
    is_list,
    is_null,
    keys,
)
from understudy.data.sources.columns import Columns, check_named, split_of
from understudy.data.sources.conversations import LAYOUTS, Conversation, Format, columns_of
from understudy.data.sources.source import DataSource
from understudy.data.sources.split_files import of_files
from understudy.data.sources.splits import sizes
from understudy.errors import InputError
from understudy.recipe.sources import SourceSection
from understudy.recipe.tasks import Kind
from understudy.store.files import Fingerprints

BATCH_ROWS = 256


Row = Mapping[str, Any]
"""A record's values by column; None is a null."""


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
    rows = {name: _count(section, fields, columns, conversation, name, path) for name, path in by_name.items()}
    splits, notes = dict[str, Split](), list[str]()
    if section.split is None:
        splits, notes = of_files(f"data.source.path: {section.path}", list(by_name))
    split_sizes = sizes((splits.get(name), count) for name, count in rows.items())
    records = _records(section, columns, conversation, by_name, splits)
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


def _count(
    section: ParquetSource,
    fields: Mapping[str, Kind],
    columns: Columns,
    conversation: Conversation | None,
    name: str,
    path: Path,
) -> int:
    """The number of a file's rows, after a check of its columns."""
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_metadata(path)
        schema = metadata.schema.to_arrow_schema()
    except _damage():
        return 0  # _records reports the damage
    _check_columns(section, fields, columns, name, schema)
    if conversation is not None:
        _check_conversation(conversation, name, schema)
    return int(metadata.num_rows)


def _records(
    section: ParquetSource,
    columns: Columns,
    conversation: Conversation | None,
    paths: dict[str, Path],
    splits: dict[str, Split],
) -> Iterator[Raw | Broken]:
    import pyarrow.parquet as pq

    naming = dict[bool, str]()
    needed = {*columns.values(), *(conversation.names if conversation else ()), *filter(None, [section.split])}
    for name, path in paths.items():
        try:
            with pq.ParquetFile(path, page_checksum_verification=True) as file:
                labels = None
                if "label" in columns:
                    labels = _label_names(columns["label"], name, file.schema_arrow)
                    _check_naming(columns["label"], name, file.schema_arrow, labels, naming)
                for number, row in enumerate(_rows(needed & {*file.schema_arrow.names}, file)):
                    record = f"{name}#{number}"
                    split = (
                        splits.get(name)
                        if section.split is None
                        else split_of(section.split, record, row[section.split])
                    )
                    yield _record(columns, conversation, record, row, split, labels)
        except _damage() as error:
            yield Broken(name, f"is damaged or no Parquet file ({_first_line(error)})")


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


def _record(
    columns: Columns,
    conversation: Conversation | None,
    name: str,
    row: Row,
    split: Split | None,
    labels: list[str] | None,
) -> Raw | Broken:
    contents = dict[str, bytes]()
    if conversation is not None:
        try:
            contents[conversation.field] = conversation.content(row)
        except ValueError as error:
            return Broken(name, str(error))
    for field, column in columns.items():
        if field != "label":
            content = _bytes(row[column])
            if content is None:
                return Broken(name, f"column {column} holds no {'bytes' if field == 'image' else 'text'}")
            contents[field] = content
    (_, first), *further_fields = contents.items()
    label = row[columns["label"]] if "label" in columns else None
    if label is None and "label" in columns:
        return Broken(name, f"column {columns['label']} is null")
    if labels is not None and isinstance(label, int):
        if not 0 <= label < len(labels):  # the library writes -1 for a missing label
            return Broken(name, f"column {columns['label']} is {label}, and only 0 to {len(labels) - 1} have a name")
        label = labels[label]
    return Raw(name, first, None if label is None else str(label), split, dict(further_fields))


def _bytes(value: Any) -> bytes | None:
    """An encoded image, also as the datasets library stores it; or a text in UTF-8."""
    content = value["bytes"] if isinstance(value, dict) else value
    return content.encode() if isinstance(content, str) else content


def _check_columns(
    section: ParquetSource, fields: Mapping[str, Kind], columns: Columns, name: str, schema: Any
) -> None:
    checks: dict[Kind, tuple[Callable[[Any], bool], str]] = {
        "image": (holds_images, "Name a column of binary (encoded images), or of structs with a binary field bytes."),
        "label": (holds_labels, "Name a column of strings or whole numbers."),
        "text": (holds_text, "Name a column of strings."),
    }
    checks["optional text"] = checks["text"]
    checked = [(_key(section, field), column, *checks[fields[field]]) for field, column in columns.items()]
    if section.split is not None:
        checked.append(("split", section.split, *checks["text"]))
    for key, column, fits, fix in checked:
        check_named(key, name, column, schema.names)
        kind = schema.field(column).type
        if not fits(decoded(kind)):
            raise InputError(f"data.source.{key}: {name}: column {column} is {kind}. {fix}")


def _check_conversation(conversation: Conversation, name: str, schema: Any) -> None:
    conversation.check(name, schema.names)
    layout = LAYOUTS[conversation.format]
    for part, column in [*conversation.required.items(), *conversation.optional.items()]:
        if part in conversation.optional and column not in schema.names:
            continue
        check_named(f"columns.{part}", name, column, schema.names)
        kind = decoded(schema.field(column).type)
        if part in conversation.optional and is_null(kind):
            continue
        if not ((layout.holds != "text" and is_list(kind)) or (layout.holds != "turns" and holds_text(kind))):
            turns = f"lists of {{{', '.join(layout.keys)}}}"
            fix = {"turns": turns, "text": "strings", "text or turns": f"strings, or {turns}"}[layout.holds]
            raise InputError(f"data.source.columns.{part}: {name}: column {column} is {kind}. Name a column of {fix}.")
        if is_list(kind):
            conversation.check_keys(name, keys(kind))


def _key(section: ParquetSource, field: str) -> str:
    """The recipe's key for the column of a field."""
    return field if field in ("image", "label") and field not in section.columns else f"columns.{field}"


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]


SOURCE = DataSource(ParquetSource, None, read, digest)
