"""The conversation of a table's row, in the formats that data sets of conversations have.

Every format gives the same canonical bytes. The rules for the turns are those of data/conversations.py.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from understudy.data.conversations import Turn, canonical
from understudy.data.sources.columns import NONE, Columns, check_named, kind_of, of_fields
from understudy.errors import InputError
from understudy.recipe.tasks import Kind

Format = Literal["messages", "sharegpt", "alpaca", "prompt-completion"]
Holds = Literal["turns", "text", "text or turns"]
"""The contents of a column."""
Values = Mapping[str, Any]
"""The values of a row's columns, by part; an optional part may be missing."""

BY_KEYS: tuple[Format, ...] = ("messages", "sharegpt")
"""The formats that differ in the keys of a turn."""
TOOLS = "tool calls are not supported"
TOOL_ROLES = ("tool", "function", "function_call", "observation")
SPEAKERS = {"system": "system", "human": "user", "gpt": "assistant"}
"""The role of each speaker of ShareGPT."""


@dataclass(frozen=True)
class Layout:
    """A format: the columns of a conversation's parts, and its turns from their values."""

    columns: Mapping[str, str]
    """The columns of the parts by default. The part of a format with one column is called messages."""
    holds: Holds
    turns: Callable[[Values], list[Turn]]
    optional: tuple[str, ...] = ()
    keys: tuple[str, str] = ("role", "content")
    """The keys of a turn."""


@dataclass(frozen=True)
class Conversation:
    """The columns of a task's conversation, which is the first field of its records."""

    field: str
    format: Format
    required: Columns
    """Columns by part."""
    optional: Columns
    """Columns that a row may lack."""

    @property
    def names(self) -> list[str]:
        """All columns, those that a row may lack too."""
        return [*self.required.values(), *self.optional.values()]

    def check(self, file: str, names: Sequence[str]) -> None:
        """Check a file's columns.

        Raises:
            InputError: a column is missing; the message names the format that the columns belong to, if there is one.
        """
        for part, column in self.required.items():
            fitting = [name for name, layout in LAYOUTS.items() if name != self.format and _fits(layout, names)]
            if column not in names and fitting:
                raise InputError(
                    f"data.source.format: {file} has no column {column}; its columns are {', '.join(names)}: "
                    f"give data.source.format: {fitting[0]}"
                )
            check_named(f"columns.{part}", file, column, names)

    def check_keys(self, file: str, keys: Collection[str]) -> None:
        """Check the keys of a file's turns.

        Raises:
            InputError: they are those of another format.
        """
        if self.format not in BY_KEYS or {*LAYOUTS[self.format].keys}.issubset(keys):
            return
        other = next((name for name in BY_KEYS if {*LAYOUTS[name].keys}.issubset(keys)), None)
        if other is not None:
            column = self.required["messages"]
            raise InputError(
                f"data.source.format: {file}: the turns in {column} have the keys {', '.join(keys)}, as those of "
                f"{other}: give data.source.format: {other}, with data.source.columns.messages: {column}"
            )

    def content(self, row: Mapping[str, Any]) -> bytes:
        """The canonical bytes of a row's conversation.

        Raises:
            ValueError: the row holds none, or one of another kind than text; the message says how.
        """
        values = {part: row[column] for part, column in self.required.items()}
        values |= {part: row[column] for part, column in self.optional.items() if column in row}
        return canonical(LAYOUTS[self.format].turns(values))


def columns_of(
    named: Columns, fields: Mapping[str, Kind], form: Format, by_default: Columns = NONE
) -> tuple[Columns, Conversation | None]:
    """The columns of a task's fields but its conversation, and those of the conversation, if it has one.

    Args:
        named: data.source.columns: columns of fields, and of a conversation's parts.
        fields: the task's fields.
        form: data.source.format.
        by_default: names of columns that the section has keys of their own for.

    Raises:
        InputError: the recipe names a column for a field that the task lacks, or a format without need.
    """
    field = next((field for field, kind in fields.items() if kind == "messages"), None)
    if field is None:
        if form != "messages":
            raise InputError("data.source.format: the task's records are no conversations. Remove the key.")
        return of_fields(named, fields, by_default), None
    assert field == next(iter(fields)), "a conversation is the first field of a task"
    layout = LAYOUTS[form]
    parts: dict[str, Kind] = {part: "optional text" if part in layout.optional else "text" for part in layout.columns}
    others = {name: kind for name, kind in fields.items() if name != field}
    required_by_default = {part: column for part, column in layout.columns.items() if part not in layout.optional}
    columns = of_fields(named, {**parts, **others}, {**by_default, **required_by_default})
    required = {part: column for part, column in columns.items() if part in parts}
    optional = {part: column for part, column in layout.columns.items() if part not in required}
    return {name: columns[name] for name in columns if name in others}, Conversation(field, form, required, optional)


def _fits(layout: Layout, names: Sequence[str]) -> bool:
    return all(column in names for part, column in layout.columns.items() if part not in layout.optional)


def _of_messages(values: Values) -> list[Turn]:
    return _turns("messages", values["messages"], 1)


def _of_sharegpt(values: Values) -> list[Turn]:
    turns = _turns("sharegpt", values["messages"], 1)
    for number, turn in enumerate(turns, 1):
        if turn["role"] not in SPEAKERS:
            raise ValueError(f"turn {number} is from {turn['role']!a}: only system, human and gpt are supported")
    return [{"role": SPEAKERS[turn["role"]], "content": turn["content"]} for turn in turns]


def _of_alpaca(values: Values) -> list[Turn]:
    system, context = (_optional(part, values.get(part)) for part in ("system", "input"))
    question = _string("instruction", values["instruction"]) + (f"\n\n{context}" if context else "")
    turns = [{"role": "system", "content": system}] if system else []
    answer = _string("output", values["output"])
    return [*turns, {"role": "user", "content": question}, {"role": "assistant", "content": answer}]


def _of_prompt_completion(values: Values) -> list[Turn]:
    turns = list[Turn]()
    for part, role in (("prompt", "user"), ("completion", "assistant")):
        if isinstance(values[part], list):
            turns += _turns("prompt-completion", values[part], len(turns) + 1)
        else:
            turns.append({"role": role, "content": _string(part, values[part])})
    return turns


def _turns(form: Format, value: Any, first: int) -> list[Turn]:
    """The turns of a list, with roles as they are.

    Args:
        form: the format, which decides the keys of a turn.
        value: a column's value.
        first: the number of its first turn in messages.
    """
    if not isinstance(value, list):
        raise ValueError(f"has {kind_of(value)} for a conversation, not a list of turns")
    return [_turn(LAYOUTS[form].keys, number, turn) for number, turn in enumerate(value, first)]


def _turn(keys: tuple[str, str], number: int, turn: Any) -> Turn:
    if not isinstance(turn, dict):
        raise ValueError(f"turn {number} is {kind_of(turn)}, not an object")
    role, content = (turn.get(key) for key in keys)
    if not isinstance(role, str):
        raise ValueError(f"turn {number} has no {keys[0]}; its keys are {', '.join(turn)}")
    if turn.get("tool_calls") or turn.get("function_call") or role in TOOL_ROLES:
        raise ValueError(f"turn {number}: {TOOLS}")
    if turn.get("weight") not in (None, 1):
        raise ValueError(f"turn {number} has the weight {turn['weight']}: weights of turns are not supported")
    return {"role": role, "content": _content(number, content)}


def _content(number: int, content: Any) -> str:
    """The content of a turn: a string, or OpenAI's list of parts, {"type": "text", "text": ...}."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise ValueError(f"turn {number} has {'no' if content is None else kind_of(content) + ' as'} content")
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind != "text" or not isinstance(part.get("text"), str):
            what = "an image" if "image" in str(kind) else "a part"
            raise ValueError(f"turn {number} has {what} (type {kind!a}): only parts of text are supported")
    return "".join(part["text"] for part in content)


def _string(part: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"its {part} is {kind_of(value)}, not a string")
    return value


def _optional(part: str, value: Any) -> str:
    """A string that may be missing; one of spaces counts as missing."""
    text = "" if value is None else _string(part, value)
    return text if text.strip() else ""


LAYOUTS: Mapping[Format, Layout] = {
    "messages": Layout({"messages": "messages"}, "turns", _of_messages),
    "sharegpt": Layout({"messages": "conversations"}, "turns", _of_sharegpt, keys=("from", "value")),
    "alpaca": Layout(
        {name: name for name in ("instruction", "input", "output", "system")}, "text", _of_alpaca, ("input", "system")
    ),
    "prompt-completion": Layout(
        {name: name for name in ("prompt", "completion")}, "text or turns", _of_prompt_completion
    ),
}
