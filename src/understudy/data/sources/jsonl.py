"""Records from JSON files: an object for each, with a key for each field of the task: texts, or a conversation.

A table's column is here a key of every object.
"""

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from understudy.data.raw import Broken, Raw, Reading, Split
from understudy.data.sources import files
from understudy.data.sources.columns import NONE, Columns, check_named, kind_of, split_of
from understudy.data.sources.conversations import Conversation, Format, columns_of
from understudy.data.sources.json_objects import COMPRESSIONS, SPREAD, Item, count, items
from understudy.data.sources.source import DataSource
from understudy.data.sources.split_files import of_files
from understudy.data.sources.splits import sizes
from understudy.errors import InputError
from understudy.recipe.sources import SourceSection
from understudy.recipe.tasks import Kind
from understudy.store.files import Fingerprints

SUFFIXES = frozenset(
    suffix + compression for suffix in (".jsonl", ".ndjson", ".json") for compression in ("", *COMPRESSIONS)
)


class JsonlSource(SourceSection):
    """A file of JSON objects, one on each line, or a folder of them; a .json file may be one array of objects."""

    type: Literal["jsonl"]
    path: str
    columns: Mapping[str, str] = {}
    """Columns of fields whose column has another name than the field, and of optional ones."""
    format: Format = "messages"
    """How a row holds a conversation, if the task's records are conversations."""
    split: str | None = None
    """Column that names each row's split: train, validation or test."""
    follow_links: bool = False
    """Whether links may lead out of the path. Links inside it are always followed."""


def read(section: JsonlSource, fields: Mapping[str, Kind]) -> Reading:
    """A record per object, named file:line, or file#item in an array.

    A record's split is in the column `split` if the recipe names one, otherwise in the file's path.

    Raises:
        InputError: the recipe names a column for a field that the task lacks; a file's first object lacks a column, or
            spreads over several lines; an array is too large; or a path names two splits, or two paths the same one.
    """
    columns, conversation = columns_of(section.columns, fields, section.format)
    root, matches = files.find(_selection(section))
    paths = {path.relative_to(root).as_posix(): path for path in matches}
    for name, path in paths.items():
        _check_first(section, columns, conversation, name, path)
    rows = {name: count(name, path) for name, path in paths.items()}
    splits, notes = dict[str, Split](), list[str]()
    if section.split is None:
        splits, notes = of_files(f"data.source.path: {section.path}", list(paths))
    split_sizes = sizes((splits.get(name), total) for name, total in rows.items())
    records = _records(section, columns, conversation, paths, splits)
    return Reading(sum(rows.values()), records, tuple(notes), split_sizes)


def digest(section: JsonlSource, fingerprints: Fingerprints) -> str:
    """One SHA-256 over names and contents of the files."""
    return files.digest(_selection(section), fingerprints)


def _selection(section: JsonlSource) -> files.FileSelection:
    words = "*.jsonl, *.ndjson or *.json files (also .gz or .zst)"
    return files.FileSelection(
        section.path, "**/*", words, SUFFIXES, may_be_one=True, follow_links=section.follow_links
    )


def _check_first(
    section: JsonlSource, columns: Columns, conversation: Conversation | None, name: str, path: Path
) -> None:
    """Check the columns of a file's first object: later ones are checked as they are read."""
    match [*islice(items(name, path), 2)]:
        case [Broken(place, reason), Broken()] if reason == SPREAD:
            raise InputError(
                f"data.source.path: {place}: the object goes on in the next line, and each has to be on one line. "
                "Write the file again, as `jq -c .` does, or as one array with the ending .json."
            )
        case [Item() as first, *_]:
            _check_columns(section, columns, conversation, first)


def _check_columns(section: JsonlSource, columns: Columns, conversation: Conversation | None, first: Item) -> None:
    if conversation is not None:
        _check_conversation(conversation, first)
    for field, column in columns.items():
        check_named(f"columns.{field}", first.name, column, list(first.row))
    if section.split is not None:
        check_named("split", first.name, section.split, list(first.row))


def _check_conversation(conversation: Conversation, first: Item) -> None:
    conversation.check(first.name, list(first.row))
    for column in conversation.required.values():
        turns = first.row[column]
        if isinstance(turns, list) and turns and isinstance(turns[0], dict):
            conversation.check_keys(first.name, turns[0])


def _records(
    section: JsonlSource,
    columns: Columns,
    conversation: Conversation | None,
    paths: Mapping[str, Path],
    splits: Mapping[str, Split],
) -> Iterator[Raw | Broken]:
    parts = conversation.required if conversation else NONE
    needed = [*parts.values(), *columns.values(), *filter(None, [section.split])]
    for name, path in paths.items():
        for item in items(name, path):
            if isinstance(item, Broken):
                yield item
            elif missing := [column for column in needed if column not in item.row]:
                yield Broken(item.name, f"has no column {missing[0]}")
            else:
                split = splits.get(name)
                if section.split is not None:
                    split = split_of(section.split, item.name, _text(item.row[section.split]))
                yield _record(columns, conversation, item, split)


def _record(columns: Columns, conversation: Conversation | None, item: Item, split: Split | None) -> Raw | Broken:
    contents, label = dict[str, bytes](), None
    if conversation is not None:
        try:
            contents[conversation.field] = conversation.content(item.row)
        except ValueError as error:
            return Broken(item.name, str(error))
    for field, column in columns.items():
        value = item.row[column]
        if field == "label":
            if isinstance(value, bool) or not isinstance(value, str | int):
                return Broken(item.name, f"column {column} is {_text(value)}, not a string or a whole number")
            if value == "":
                return Broken(item.name, f"column {column} is empty")
            label = str(value)
        elif isinstance(value, str):
            contents[field] = value.encode()
        else:
            return Broken(item.name, f"column {column} is {kind_of(value)}, not a string")
    (_, first), *further_fields = contents.items()
    return Raw(item.name, first, label, split, dict(further_fields))


def _text(value: Any) -> str:
    """A value in a message, cut if it is long."""
    return value if isinstance(value, str) else json.dumps(value)[:40]


SOURCE = DataSource(JsonlSource, None, read, digest, frozenset({"text", "optional text", "label", "messages"}))
