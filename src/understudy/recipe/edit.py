"""Changes of single values in a recipe's file, which preserve comments, order and line endings."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml as pyyaml

from understudy.errors import InputError
from understudy.recipe import yaml
from understudy.recipe.file import from_values
from understudy.recipe.yaml import KeyPath, Value
from understudy.store.files import write_whole


def rewrite(path: Path, values: Mapping[KeyPath, Value]) -> None:
    """Change values in a recipe's file: all of them, or nothing.

    Args:
        path: the file of a recipe that is valid with the overrides of this run.
        values: new values by path.

    Raises:
        InputError: a value cannot be changed alone, the file would be invalid without overrides, or it cannot be
            written.
        UnderstudyError: the disk is full.
    """
    text = path.read_bytes().decode()
    for key_path, value in values.items():
        changed = with_value(text, key_path, value)
        if changed is None:
            raise InputError(
                f"{path}: {'.'.join(map(str, key_path))} cannot be changed alone; write {value} there yourself"
            )
        text = changed
    data = yaml.parse(text).data
    assert isinstance(data, dict)
    try:
        from_values(data, (), str(path))
    except InputError as error:
        raise InputError(
            f"{path}: nothing was written, since without the overrides of this run it would be refused then; write "
            f"them into it, too:\n{error}"
        ) from error
    write_whole(path.resolve(), text.encode())


def with_value(text: str, path: KeyPath, value: Value) -> str | None:
    """The text with another value at a path, whose section exists.

    Args:
        text: the YAML of a recipe, without errors.
        path: the value's path; its last key is added if it is missing.
        value: written on one line.

    Returns:
        The new text; None if the value cannot be changed alone, for example behind an alias.
    """
    section: Any = pyyaml.compose(text, Loader=pyyaml.SafeLoader)
    for key in path[:-1]:
        section = _child(section, key)
    if not isinstance(section, pyyaml.MappingNode) or not section.value:
        return None
    old = _child(section, path[-1])
    words = _flow(value)
    if old is not None:
        changed = text[: old.start_mark.index] + words + text[_end(old) :]
    else:
        start = section.value[0][0].start_mark
        line_end = "\r\n" if "\r\n" in text else "\n"
        next_key = ", " if section.flow_style else line_end + " " * start.column
        changed = f"{text[: start.index]}{path[-1]}: {words}{next_key}{text[start.index :]}"
    return changed if yaml.parse(changed).data == _with(yaml.parse(text).data, path, value) else None


def _child(section: Any, key: str | int) -> Any:
    if not isinstance(section, pyyaml.MappingNode):
        return None
    return next((value for name, value in section.value if name.value == key), None)


def _end(node: pyyaml.Node) -> int:
    """The end of a value's text: for a block, that of its last value, since PyYAML's includes comments after it."""
    if isinstance(node, pyyaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end(last[1] if isinstance(node, pyyaml.MappingNode) else last)
    end: int = node.end_mark.index
    return end


def _flow(value: Value) -> str:
    words: str = pyyaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=2**16)
    return words.removesuffix("\n").removesuffix("\n...")


def _with(data: Value, path: KeyPath, value: Value) -> Value:
    if not path:
        return value
    assert isinstance(data, dict)
    key = str(path[0])
    return {**data, key: _with(data.get(key), path[1:], value)}
