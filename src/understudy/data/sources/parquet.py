"""Images from Parquet files: a column of encoded bytes (or the {bytes, path} of the datasets library) and a label."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypedDict

from understudy.data.raw import Broken, Raw, Reading, Split
from understudy.data.sources import files
from understudy.data.sources.source import DataSource
from understudy.data.sources.split_files import of_files
from understudy.data.sources.splits import SPLIT_NAMES, sizes, split_named
from understudy.errors import InputError
from understudy.recipe.sources import SourceSection
from understudy.store.files import Fingerprints

BATCH_ROWS = 256


class Encoded(TypedDict):
    """An image as the datasets library stores it."""

    bytes: bytes | None
    path: str | None


class Row(NamedTuple):
    """The columns of a record; None is a null."""

    image: bytes | Encoded | None
    label: str | int | None
    split: str | None


class ParquetSource(SourceSection):
    """A Parquet file, or a folder of them, with a column of encoded images and one of labels."""

    type: Literal["parquet"]
    path: str
    image: str = "image"
    label: str = "label"
    split: str | None = None
    """Column that names each row's split: train, validation or test."""
    follow_links: bool = False
    """Whether links may lead out of the path. Links inside it are always followed."""


def read(section: ParquetSource) -> Reading:
    """A record per row, named file#row.

    A record's split is in the column `split` if the recipe names one, otherwise in the file's path.

    Raises:
        InputError: a file lacks a column that the recipe names, has it twice, or has one of another type; or a path
            names two splits, or two paths the same one.
    """
    root, found = files.find(_wanted(section))
    named = {path.relative_to(root).as_posix(): path for path in found}
    rows = {name: _count(section, name, path) for name, path in named.items()}
    splits, notes = dict[str, Split](), list[str]()
    if section.split is None:
        splits, notes = of_files(f"data.source.path: {section.path}", list(named))
    split_sizes = sizes((splits.get(name), count) for name, count in rows.items())
    return Reading(sum(rows.values()), _records(section, named, splits), tuple(notes), split_sizes)


def digest(section: ParquetSource, fingerprints: Fingerprints) -> str:
    """One SHA-256 over names and contents of the files."""
    return files.digest(_wanted(section), fingerprints)


def _wanted(section: ParquetSource) -> files.Wanted:
    return files.Wanted(
        section.path, "**/*.parquet", "*.parquet files", may_be_one=True, follow_links=section.follow_links
    )


def _damage() -> tuple[type[Exception], ...]:
    """The errors of pyarrow for damaged files; ValueError is a damaged string."""
    import pyarrow as pa

    return pa.ArrowException, ValueError, OSError


def _count(section: ParquetSource, name: str, path: Path) -> int:
    """The number of a file's rows, after a check of its columns."""
    import pyarrow.parquet as pq

    try:
        about = pq.read_metadata(path)
        schema = about.schema.to_arrow_schema()
    except _damage():
        return 0  # _records reports the damage
    _check_columns(section, name, schema)
    return int(about.num_rows)


def _records(section: ParquetSource, found: dict[str, Path], splits: dict[str, Split]) -> Iterator[Raw | Broken]:
    import pyarrow.parquet as pq

    naming = dict[bool, str]()
    for name, path in found.items():
        try:
            with pq.ParquetFile(path, page_checksum_verification=True) as file:
                labels = _label_names(section.label, name, file.schema_arrow)
                _check_naming(section.label, name, file.schema_arrow, labels, naming)
                for number, row in enumerate(_rows(section, file)):
                    record = f"{name}#{number}"
                    split = splits.get(name) if section.split is None else _split(section.split, record, row.split)
                    yield _record(section, record, row, split, labels)
        except _damage() as error:
            yield Broken(name, f"is damaged or no Parquet file ({_first_line(error)})")


def _label_names(column: str, name: str, schema: Any) -> list[str] | None:
    """The names that the datasets library gives to a column's whole numbers 0, 1, ...; None if the file has none.

    The library keeps its types as JSON beside the schema: {"info": {"features": {COLUMN: {"_type": "ClassLabel",
    "names": [...]}}}}. Without them the labels of a class folder that it has read would be numbers.
    """
    if not _holds_numbers(schema.field(column).type):
        return None
    try:
        found = json.loads((schema.metadata or {}).get(b"huggingface", b"null"))
    except ValueError as error:
        raise InputError(
            f"data.source.label: {name}: what the datasets library wrote beside its columns is not JSON, and may name "
            f"the numbers in {column}. Write the file again, or with labels in words."
        ) from error
    for key in ("info", "features", column, "names"):
        found = found.get(key) if isinstance(found, dict) else None
    return [str(name) for name in found] if isinstance(found, list) else None


def _check_naming(column: str, name: str, schema: Any, labels: list[str] | None, naming: dict[bool, str]) -> None:
    """Reject named whole numbers beside unnamed ones: 0 and cat would be two labels.

    Args:
        column: the column of labels.
        name: the file's name.
        schema: the file's schema.
        labels: the names of its numbers.
        naming: the first file with and the first without names, of those so far; this one is added.
    """
    if not _holds_numbers(schema.field(column).type):
        return
    naming.setdefault(labels is not None, name)
    if len(naming) > 1:
        raise InputError(
            f"data.source.label: {naming[False]} does not name its labels as {naming[True]} does: the "
            f"whole numbers in its {column} have no names. Write both files with the same type of {column}."
        )


def _rows(section: ParquetSource, file: Any) -> Iterator[Row]:
    columns = [column for column in (section.image, section.label, section.split) if column is not None]
    for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=columns):
        images, labels = batch[section.image].to_pylist(), batch[section.label].to_pylist()
        splits = [None] * len(images) if section.split is None else batch[section.split].to_pylist()
        yield from map(Row, images, labels, splits)


def _record(section: ParquetSource, name: str, row: Row, split: Split | None, labels: list[str] | None) -> Raw | Broken:
    content = row.image["bytes"] if isinstance(row.image, dict) else row.image
    if content is None:
        return Broken(name, f"column {section.image} holds no bytes")
    if row.label is None:
        return Broken(name, f"column {section.label} is null")
    label = row.label
    if labels is not None and isinstance(label, int):
        if not 0 <= label < len(labels):  # the library writes -1 for a missing label
            return Broken(name, f"column {section.label} is {label}, and only 0 to {len(labels) - 1} have a name")
        label = labels[label]
    return Raw(name, content, str(label), split)


def _split(column: str, name: str, value: str | None) -> Split:
    split = split_named(value or "")
    if split is None:
        fix = f"It may say {', '.join(SPLIT_NAMES)}."
        raise InputError(f"data.source.split: {name}: column {column} says {value!r}. {fix}")
    return split


def _check_columns(section: ParquetSource, name: str, schema: Any) -> None:
    columns: dict[str, tuple[str, Callable[[Any], bool], str]] = {
        "image": (
            section.image,
            _holds_images,
            "Name a column of binary (encoded images), or of structs with a binary field bytes.",
        ),
        "label": (section.label, _holds_labels, "Name a column of strings or whole numbers."),
    }
    if section.split is not None:
        columns["split"] = (section.split, _holds_text, "Name a column of strings.")
    for key, (column, fits, fix) in columns.items():
        if column not in schema.names:
            raise InputError(
                f"data.source.{key}: {name} has no column {column}. It has {', '.join(schema.names)}: name one of them."
            )
        if schema.names.count(column) > 1:
            raise InputError(
                f"data.source.{key}: {name} has {schema.names.count(column)} columns called {column}, as a join leaves "
                "them. Write it again with one."
            )
        kind = schema.field(column).type
        if not fits(_decoded(kind)):
            raise InputError(f"data.source.{key}: {name}: column {column} is {kind}. {fix}")


def _holds_numbers(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(_decoded(kind)))


def _decoded(kind: Any) -> Any:
    """The type of a column's values; a dictionary column has indices into them."""
    import pyarrow as pa

    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _holds_images(kind: Any) -> bool:
    import pyarrow as pa

    if pa.types.is_struct(kind):
        names = [field.name for field in kind]  # pyarrow cannot read a struct with two fields of one name
        return len(set(names)) == len(names) and "bytes" in names and _holds_images(kind.field("bytes").type)
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _holds_labels(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind)) or _holds_text(kind)


def _holds_text(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]


SOURCE = DataSource(ParquetSource, ("image-classification",), read, digest)
