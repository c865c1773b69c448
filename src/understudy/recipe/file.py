"""From a recipe file and overrides to a Recipe, and back. All that is wrong is said at once, with line and path."""

import json
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from understudy.errors import InputError
from understudy.recipe import yaml
from understudy.recipe.errors import explain, shown
from understudy.recipe.objectives import DISTILL
from understudy.recipe.rules import conflicts
from understudy.recipe.schema import Recipe
from understudy.recipe.yaml import Place

# Where a path may stand. The data's is one always; the others may be a hub's id.
DATA = ("data", "source", "path")
PRETRAINED = (
    ("teacher", "model", "pretrained"),
    ("student", "model", "pretrained"),
    ("data", "text", "tokenizer", "pretrained"),
)
DISTILL_PLACE = ("student", "distill")


@dataclass(frozen=True)
class Override:
    """One a.b.c=value: how to call it in a message, and what it sets."""

    label: str
    place: Place
    value: Any


def load(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read and check a recipe.

    Args:
        path: the YAML file. Relative paths in it are meant from its folder.
        overrides: "a.b.c=value", the value in YAML. Relative paths in them are meant from the working directory.

    Raises:
        InputError: with one line per problem.
    """
    document = yaml.parse(_read(path))
    if document.problems:
        raise InputError("\n".join(f"{path}:{p.line}: {_words(p.place, p.text)}" for p in document.problems))
    if not isinstance(document.data, dict):
        raise InputError(f"{path}: a recipe is a section with the keys {', '.join(_required())}, ...; see recipes/")
    changes = _apply(document.data, [_override(text, "--set ") for text in overrides])
    _anchor(document.data, path.parent, changes)
    return _checked(document.data, changes, str(path), document.lines)


def from_values(values: dict[str, Any], overrides: Sequence[str], where: str) -> Recipe:
    """Check a recipe that was read before, with overrides.

    Args:
        values: the recipe as plain data.
        overrides: "a.b.c=value", the value in YAML.
        where: how to call the values in an error.

    Raises:
        InputError: with one line per problem.
    """
    data = json.loads(json.dumps(values))
    changes = _apply(data, [_override(text, "overrides ") for text in overrides])
    return _checked(data, changes, where, {})


def split_overrides(text: str) -> list[str]:
    """The overrides in one text: one a.b=v a line, or separated by semicolons."""
    parts = re.split(r"[\n;]\s*(?=[A-Za-z_][\w.-]*\s*=)|\n", text)
    return [stripped for part in parts if (stripped := part.strip().rstrip(";").rstrip())]


def dump(recipe: Recipe) -> str:
    """The complete recipe as YAML, every default filled in."""
    return yaml.dump(completed(recipe).model_dump(mode="json", by_alias=True))


def schema() -> dict[str, Any]:
    """The JSON schema of a recipe, for editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Recipe.model_json_schema(by_alias=True)}


def completed(recipe: Recipe) -> Recipe:
    """The recipe with the defaults that depend on its task or name written out."""
    shape = {"text": recipe.text} if recipe.task == "causal-lm" else {"image": recipe.image}
    names = {"model": recipe.model_name, "experiment": recipe.experiment}
    return recipe.model_copy(
        update={
            "data": recipe.data.model_copy(update=shape),
            "evaluate": recipe.evaluate.model_copy(update={"metrics": recipe.metrics}),
            "gate": recipe.gate.model_copy(update={"metric": recipe.gate_metric}),
            "register_": recipe.register_.model_copy(update=names),
        }
    )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not a text file in UTF-8 (byte {error.start})") from error
    except OSError as error:
        raise InputError(f"{path}: cannot read this recipe ({os.strerror(error.errno or 0)})") from error


def _required() -> list[str]:
    return [name for name, field in Recipe.model_fields.items() if field.is_required()]


def _override(text: str, prefix: str) -> Override:
    label = f"{prefix}{text}"
    name, equals, value = text.partition("=")
    place = tuple(part.strip() for part in name.split("."))
    if not equals or not all(place):
        raise InputError(f"{label}: write it as a.b.c=value")
    document = yaml.parse(value.strip())
    if document.problems:
        raise InputError(f"{label}: {document.problems[0].text}")
    return Override(label, place, document.data)


def _apply(data: dict[str, Any], changes: Sequence[Override]) -> list[Override]:
    """Change the data; the overrides come back with the numbers of list entries that they name by type."""
    return [replace(change, place=_set(data, change)) for change in changes]


def _set(data: dict[str, Any], change: Override) -> Place:
    section: Any = data
    place: list[str | int] = []
    for depth, name in enumerate(change.place[:-1], start=1):
        key = _key(section, name)
        place.append(key)
        inner = section[int(key)] if isinstance(section, list) else section.get(key)
        if inner is None:
            inner = section[key] = _default(tuple(place))
        if not _has(inner, change.place[depth]):
            outer, rest = (".".join(map(str, part)) for part in (change.place[:depth], change.place[depth:]))
            named = _named(inner, outer) or f"set all of it: {outer}={{...}}"
            raise InputError(f"{change.label}: {outer} is {shown(inner)} and has no {rest}; {named}")
        section = inner
    key = _key(section, change.place[-1])
    section[key] = change.value
    return (*place, key)


def _default(place: Place) -> Any:
    """What an override finds in a section that the recipe leaves out."""
    left_out: dict[Place, Any] = {DISTILL_PLACE: [objective.model_dump(mode="json") for objective in DISTILL]}
    return left_out.get(place, {})


def _has(section: Any, name: str | int) -> bool:
    """Whether a value can stand there."""
    return isinstance(section, dict) or (isinstance(section, list) and _entry(section, str(name)) is not None)


def _named(section: Any, outer: str) -> str:
    """How the entries of a list of sections are named."""
    entries = section if isinstance(section, list) else []
    types = [entry.get("type") if isinstance(entry, dict) else None for entry in entries]
    names = [kind if kind and types.count(kind) == 1 else at for at, kind in enumerate(types)]
    return f"name an entry: {', '.join(f'{outer}.{name}' for name in names)}" if any(types) else ""


def _key(section: Any, name: str | int) -> str | int:
    entry = _entry(section, str(name)) if isinstance(section, list) else None
    return name if entry is None else entry


def _entry(found: list[Any], name: str) -> int | None:
    """Where a list has the entry of this number, or the only one of this type."""
    if name.isdecimal():
        return int(name) if int(name) < len(found) else None
    types = [entry.get("type") if isinstance(entry, dict) else None for entry in found]
    return types.index(name) if types.count(name) == 1 else None


def _anchor(data: dict[str, Any], folder: Path, changes: Sequence[Override]) -> None:
    """Make relative paths absolute."""
    for place in (DATA, *PRETRAINED):
        section: Any = data
        for key in place[:-1]:
            section = section.get(key) if isinstance(section, dict) else None
        value = section.get(place[-1]) if isinstance(section, dict) else None
        if not isinstance(value, str) or not value:
            continue
        start = Path() if any(change.place == place[: len(change.place)] for change in changes) else folder
        if place == DATA or value.startswith(("./", "../")) or value in (".", "..") or (start / value).exists():
            section[place[-1]] = os.path.normpath(start.absolute() / value)


def _checked(data: dict[str, Any], changes: Sequence[Override], name: str, lines: dict[Place, int]) -> Recipe:
    try:
        # Through JSON, where strict means what a user means by it: a list may become a tuple, "3" no number.
        recipe = Recipe.model_validate_json(json.dumps(data), strict=True)
        found = list(conflicts(recipe))
    except ValidationError as error:
        found = [explain(details) for details in error.errors(include_url=False)]
    if not found:
        return completed(recipe)
    located = [(*_locate(place, changes, name, lines), _words(place, text)) for place, text in found]
    raise InputError("\n".join(f"{where}: {words}{also}" for _, where, also, words in sorted(located)))


def _locate(place: Place, changes: Sequence[Override], name: str, lines: dict[Place, int]) -> tuple[int, str, str]:
    """A rank, the override or the line that a place comes from, and the overrides that changed something inside it."""
    for change in reversed(changes):
        if place[: len(change.place)] == change.place:
            return sys.maxsize, change.label, ""
    inside = [change.label for change in changes if place and change.place[: len(place)] == place]
    if inside and lines and place not in lines:  # the file has no such place, so overrides made it
        return sys.maxsize, ", ".join(inside), ""
    known = next((lines[place[:end]] for end in range(len(place), -1, -1) if place[:end] in lines), 0)
    return known, f"{name}:{known}" if known else name, f" (with {', '.join(inside)})" if inside else ""


def _words(place: Place, text: str) -> str:
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)[1:]
    return f"{path}: {text}" if path else text
