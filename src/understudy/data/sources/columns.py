"""The columns of a table's fields and splits, by name: for every source that reads tables."""

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType, NoneType

from understudy.data.raw import Split
from understudy.data.sources.splits import SPLIT_NAMES, split_named
from understudy.errors import InputError
from understudy.recipe.tasks import Kind

Columns = Mapping[str, str]
"""The column of each field."""

NONE: Columns = MappingProxyType({})

NAMES = {str: "a string", list: "an array", dict: "an object", bool: "true or false", NoneType: "null"}


def of_fields(named: Columns, fields: Mapping[str, Kind], by_default: Columns = NONE) -> Columns:
    """The column of each field; an optional field has one only if the recipe names it.

    Args:
        named: data.source.columns.
        fields: the task's fields.
        by_default: names of columns that the section has keys of their own for.

    Raises:
        InputError: the recipe names a column for a field that the task lacks, or one column for two fields.
    """
    unknown = sorted(named.keys() - fields.keys())
    if unknown:
        raise InputError(
            f"data.source.columns.{unknown[0]}: the task has no such field. Its fields are {', '.join(fields)}."
        )
    columns = {**by_default, **named}
    by_field = {
        field: columns.get(field, field)
        for field, kind in fields.items()
        if kind != "optional text" or field in columns
    }
    for column, count in Counter(by_field.values()).items():
        if count > 1:
            raise _shared(column, [field for field in by_field if by_field[field] == column], named, by_default)
    return by_field


def _shared(column: str, fields: Sequence[str], named: Columns, by_default: Columns) -> InputError:
    """An error that blames the last of the fields of one column that the recipe names a column for."""
    field = next(
        (field for field in reversed(fields) if field in named or by_default.get(field, field) != field), fields[-1]
    )
    key = field if field in by_default and field not in named else f"columns.{field}"
    other = next(other for other in fields if other != field)
    return InputError(
        f"data.source.{key}: {column} is the column of the field {other}, too; name the column that has the {field}."
    )


def check_named(key: str, file: str, column: str, names: Sequence[str]) -> None:
    """Reject a column that a file lacks or has twice.

    Args:
        key: the recipe's key for the column, below data.source.
        file: the file's name.
        column: the column's name.
        names: the names of the file's columns.

    Raises:
        InputError: the file lacks it, or has it twice.
    """
    if column not in names:
        raise InputError(
            f"data.source.{key}: {file} has no column {column}. It has {', '.join(names)}: name one of them."
        )
    if names.count(column) > 1:
        raise InputError(
            f"data.source.{key}: {file} has {names.count(column)} columns called {column}, as a join leaves "
            "them. Write it again with one."
        )


def split_of(column: str, record: str, value: str | None) -> Split:
    """The split that a record's value in the column data.source.split names.

    Raises:
        InputError: it names none.
    """
    split = split_named(value or "")
    if split is None:
        fix = f"It may say {', '.join(SPLIT_NAMES)}."
        raise InputError(f"data.source.split: {record}: column {column} says {value!r}. {fix}")
    return split


def kind_of(value: object) -> str:
    """The name of a value's type in a message, in the words of JSON."""
    return NAMES.get(type(value), "a number")
