"""Images out of Parquet files: a column of encoded bytes (or the {bytes, path} of the datasets library) and a label."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from understudy.data.raw import SPLIT_NAMES, Broken, Raw, Reading, Split
from understudy.errors import InputError
from understudy.recipe.data import ParquetSource

BATCH_ROWS = 256
# What pyarrow raises for damaged files; ValueError is a damaged string.
_DAMAGE = (pa.ArrowException, ValueError, OSError)
# The hub's name for a split's file: train-00000-of-00002.parquet, or train.parquet.
HUB_NAME = re.compile(rf"({'|'.join(SPLIT_NAMES)})(-\d+-of-\d+)?\.parquet")


def read(source: ParquetSource, root: Path, files: list[Path]) -> Reading:
    """A record per row, named file#row.

    Its own split is the column `split` where the recipe names one, otherwise the file's name or first folder.
    """
    named = {path.relative_to(root).as_posix(): path for path in files}
    return Reading(sum(map(_count, files)), _records(source, named))


def _count(path: Path) -> int:
    try:
        return int(pq.read_metadata(path).num_rows)
    except _DAMAGE:
        return 0  # _records says what is wrong with it


def _records(source: ParquetSource, files: dict[str, Path]) -> Iterator[Raw | Broken]:
    for name, path in files.items():
        try:
            with pq.ParquetFile(path, page_checksum_verification=True) as file:
                _check_columns(source, name, file.schema_arrow)
                for number, row in enumerate(_rows(source, file)):
                    yield _record(source, name, f"{name}#{number}", row)
        except _DAMAGE as error:
            yield Broken(name, f"is damaged or no Parquet file ({_first_line(error)})")


def _rows(source: ParquetSource, file: Any) -> Iterator[dict[str, Any]]:
    columns = [column for column in (source.image, source.label, source.split) if column is not None]
    for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=columns):
        yield from batch.to_pylist()


def _record(source: ParquetSource, file: str, name: str, row: dict[str, Any]) -> Raw | Broken:
    image, label = row[source.image], row[source.label]
    content = image["bytes"] if isinstance(image, dict) else image
    if content is None:
        return Broken(name, f"column {source.image} holds no bytes")
    if label is None:
        return Broken(name, f"column {source.label} is null")
    return Raw(name, content, str(label), _split(source, file, name, row))


def _split(source: ParquetSource, file: str, name: str, row: dict[str, Any]) -> Split | None:
    if source.split is not None:
        value = row[source.split]
        if value not in SPLIT_NAMES:
            raise InputError(
                f"data.source.split: {name}: column {source.split} says {value!r}. It may say {', '.join(SPLIT_NAMES)}."
            )
        return SPLIT_NAMES[value]
    first, *_, last = file.split("/") if "/" in file else ("", file)
    named = HUB_NAME.fullmatch(last)
    return SPLIT_NAMES.get(named[1] if named else first)


def _check_columns(source: ParquetSource, name: str, schema: Any) -> None:
    wanted = {"image": (source.image, _holds_images), "label": (source.label, _holds_labels)}
    if source.split is not None:
        wanted["split"] = (source.split, lambda kind: kind == pa.string() or pa.types.is_large_string(kind))
    for key, (column, fits) in wanted.items():
        if column not in schema.names:
            raise InputError(
                f"data.source.{key}: {name} has no column {column}. It has {', '.join(schema.names)}: name one of them."
            )
        kind = schema.field(column).type
        if not fits(kind.value_type if pa.types.is_dictionary(kind) else kind):
            raise InputError(f"data.source.{key}: {name}: column {column} is {kind}. {_FIXES[key]}")


_FIXES = {
    "image": "Name a column of binary (encoded images), or of structs with a binary field bytes.",
    "label": "Name a column of strings or whole numbers.",
    "split": "Name a column of strings.",
}


def _holds_images(kind: Any) -> bool:
    if pa.types.is_struct(kind):
        return any(field.name == "bytes" and _holds_images(field.type) for field in kind)
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _holds_labels(kind: Any) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
