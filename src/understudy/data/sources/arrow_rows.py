"""The records of an Arrow table's rows: a column for each field of the task, whose type fits the field's kind.

Images are encoded bytes, or the {bytes, path} of the datasets library. The turns of a conversation are a list of
structs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from understudy.data.raw import Broken, Raw, Split
from understudy.data.sources.arrow_types import decoded, holds_images, holds_labels, holds_text, is_list, is_null, keys
from understudy.data.sources.columns import Columns, check_named
from understudy.data.sources.conversations import LAYOUTS, Conversation
from understudy.errors import InputError
from understudy.recipe.tasks import Kind

BATCH_ROWS = 256

Row = Mapping[str, Any]
"""A record's values by column; None is a null."""
Check = tuple[Callable[[Any], bool], str]
"""Whether a column's type fits, and the fix if it does not."""

TEXT: Check = (holds_text, "Name a column of strings.")
CHECKS: Mapping[Kind, Check] = MappingProxyType(
    {
        "image": (holds_images, "Name a column of binary (encoded images), or of structs with a binary field bytes."),
        "label": (holds_labels, "Name a column of strings or whole numbers."),
        "text": TEXT,
        "optional text": TEXT,
    }
)


@dataclass(frozen=True)
class RowLayout:
    """The columns of a task's fields in a table."""

    fields: Mapping[str, Kind]
    checks: Mapping[Kind, Check]
    columns: Columns
    """Of all fields but the conversation."""
    conversation: Conversation | None
    keys: Mapping[str, str]
    """The recipe's key for the column of a field, if it is not columns.FIELD."""
    split: str | None = None
    """Column that names each row's split."""

    @property
    def names(self) -> set[str]:
        """All columns, those that a table may lack too."""
        return {*self.required, *(self.conversation.optional.values() if self.conversation else ())}

    @property
    def required(self) -> set[str]:
        """The columns that a table has to have."""
        parts = self.conversation.required.values() if self.conversation else ()
        return {*self.columns.values(), *parts, *self._split}

    @property
    def _split(self) -> Sequence[str]:
        return [] if self.split is None else [self.split]

    def check(self, name: str, schema: Any) -> None:
        """Check the columns of a file.

        Raises:
            InputError: it lacks a column, has it twice, or has one of another type.
        """
        checked = [
            (self.keys.get(field, f"columns.{field}"), column, *self.checks[self.fields[field]])
            for field, column in self.columns.items()
        ]
        checked += [("split", column, *TEXT) for column in self._split]
        for key, column, fits, fix in checked:
            check_named(key, name, column, schema.names)
            kind = schema.field(column).type
            if not fits(decoded(kind)):
                raise InputError(f"data.source.{key}: {name}: column {column} is {kind}. {fix}")
        if self.conversation is not None:
            _check_conversation(self.conversation, name, schema)

    def record(self, name: str, row: Row, split: Split | None, labels: Sequence[str] | None) -> Raw | Broken:
        """The record of a row.

        Args:
            name: the record's name.
            row: the values of the columns.
            split: the record's split.
            labels: the names of whole numbers in the column of labels.
        """
        contents = dict[str, bytes]()
        if self.conversation is not None:
            try:
                contents[self.conversation.field] = self.conversation.content(row)
            except ValueError as error:
                return Broken(name, str(error))
        for field, column in self.columns.items():
            if field != "label":
                content = _bytes(row[column])
                if content is None:
                    return Broken(name, f"column {column} holds no {'bytes' if field == 'image' else 'text'}")
                contents[field] = content
        (_, first), *further_fields = contents.items()
        label = row[self.columns["label"]] if "label" in self.columns else None
        if label is None and "label" in self.columns:
            return Broken(name, f"column {self.columns['label']} is null")
        if labels is not None and isinstance(label, int):
            if not 0 <= label < len(labels):  # the library writes -1 for a missing label
                column = self.columns["label"]
                return Broken(name, f"column {column} is {label}, and only 0 to {len(labels) - 1} have a name")
            label = labels[label]
        return Raw(name, first, None if label is None else str(label), split, dict(further_fields))


def _bytes(value: Any) -> bytes | None:
    """An encoded image, also as the datasets library stores it; or a text in UTF-8."""
    content = value["bytes"] if isinstance(value, dict) else value
    return content.encode() if isinstance(content, str) else content


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


def first_line(error: BaseException) -> str:
    """The first line of an error's message: those of pyarrow go on with its source."""
    return str(error).partition("\n")[0]
