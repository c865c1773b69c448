"""Overrides: a.b.c=value changes one value of a recipe, and removes what the file says that contradicts it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from understudy.errors import InputError
from understudy.recipe import yaml
from understudy.recipe.errors import shown
from understudy.recipe.objectives import DISTILL
from understudy.recipe.yaml import Place, Value, Values

DISTILL_PLACE = ("student", "distill")
TRAININGS = (("teacher", "train"), ("student", "train"))
LENGTHS = {"steps": "epochs", "epochs": "steps"}


@dataclass(frozen=True)
class Override:
    """One a.b.c=value: how to call it in a message, and what it sets."""

    label: str
    place: Place
    value: Value

    def decides(self, place: Place) -> bool:
        """Whether the value at a place is this override's."""
        return self.place == place[: len(self.place)]


def override(text: str, prefix: str) -> Override:
    """The override in a text.

    Raises:
        InputError: the text is no a.b.c=value, or its value is no YAML.
    """
    label = f"{prefix}{text}"
    name, equals, value = text.partition("=")
    place = tuple(part.strip() for part in name.split("."))
    if not equals or not all(place):
        raise InputError(f"{label}: write it as a.b.c=value")
    document = yaml.parse(value.strip())
    if document.problems:
        raise InputError(f"{label}: {document.problems[0].text}")
    return Override(label, place, document.data)


def split_overrides(text: str) -> list[str]:
    """The overrides in one text: one a.b=v a line, or separated by semicolons."""
    # A semicolon inside of a value stays there: only one with a.b= behind it separates.
    parts = re.split(r"[\n;]\s*(?=[A-Za-z_][\w.-]*\s*=)|\n", text)
    stripped = [part.strip().rstrip(";").rstrip() for part in parts]
    return [part for part in stripped if part]


def apply(data: Values, changes: Sequence[Override]) -> list[Override]:
    """Change the data; the overrides come back with the numbers of list entries that they name by type.

    Raises:
        InputError: an override names a place that cannot be.
    """
    applied = [replace(change, place=_set(data, change)) for change in changes]
    for place in TRAININGS:
        train = _section(data, place)
        if train is not None:
            _drop_overridden(train, place, applied)
    return applied


def _drop_overridden(train: Values, place: Place, changes: Sequence[Override]) -> None:
    """Remove the file's steps or epochs, and shorten its warm-up, where an override replaces them.

    `--set teacher.train.steps=1` is how a recipe is tried out. It says nothing of epochs and warm-up, and who writes it
    does not want to look them up. Two overrides, or two values of the file, that contradict each other stay an error.
    """

    def overridden(*keys: str) -> bool:
        return any(change.decides((*place, *keys)) for change in changes)

    for length, other in LENGTHS.items():
        if overridden(length) and not overridden(other) and train.get(length) is not None:
            train.pop(other, None)
    steps, schedule = train.get("steps"), train.get("schedule")
    if not overridden("steps") or overridden("schedule", "warmup") or not isinstance(schedule, dict):
        return
    warmup = schedule.get("warmup")
    if isinstance(steps, int) and isinstance(warmup, int) and warmup >= steps > 0:
        schedule["warmup"] = steps - 1


def _section(data: Values, place: Place) -> Values | None:
    """The section at a place, where there is one."""
    found: Value = data
    for key in place:
        found = found.get(str(key)) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else None


def _set(data: Values, change: Override) -> Place:
    """Set the override's value, and return its place with the numbers of the list entries in it."""
    section: Values | list[Value] = data
    place: list[str | int] = []
    for depth, name in enumerate(change.place[:-1], start=1):
        key = _key(section, name)
        place.append(key)
        inner = _get(section, key)
        if inner is None:
            inner = _default(tuple(place), data.get("task"))
            _put(section, key, inner)
        if not isinstance(inner, dict | list) or not _has(inner, change.place[depth]):
            outer, rest = (".".join(map(str, part)) for part in (change.place[:depth], change.place[depth:]))
            named = _entry_names(inner, outer) or f"set all of it: {outer}={{...}}"
            raise InputError(f"{change.label}: {outer} is {shown(inner)} and has no {rest}; {named}")
        section = inner
    key = _key(section, change.place[-1])
    _put(section, key, change.value)
    return (*place, key)


def _get(section: Values | list[Value], key: str | int) -> Value:
    return section[int(key)] if isinstance(section, list) else section.get(str(key))


def _put(section: Values | list[Value], key: str | int, value: Value) -> None:
    if isinstance(section, list):
        section[int(key)] = value
    else:
        section[str(key)] = value


def _default(place: Place, task: Value) -> Value:
    """What an override finds in a section that the recipe leaves out."""
    if place == DISTILL_PLACE and isinstance(task, str):
        return [objective.model_dump(mode="json") for objective in DISTILL.get(task, ())]
    return {}


def _has(section: Values | list[Value], name: str | int) -> bool:
    """Whether a value can stand there."""
    return isinstance(section, dict) or _entry(section, str(name)) is not None


def _entry_names(section: Value, outer: str) -> str:
    """How the entries of a list of sections are named; nothing for what is no such list."""
    types = _types(section) if isinstance(section, list) else []
    # An entry goes by its type, and by its number where two have the same.
    names = [kind if kind and types.count(kind) == 1 else at for at, kind in enumerate(types)]
    return f"name an entry: {', '.join(f'{outer}.{name}' for name in names)}" if any(types) else ""


def _key(section: Values | list[Value], name: str | int) -> str | int:
    entry = _entry(section, str(name)) if isinstance(section, list) else None
    return name if entry is None else entry


def _entry(found: list[Value], name: str) -> int | None:
    """Where a list has the entry of this number, or the only one of this type."""
    if name.isdecimal():
        return int(name) if int(name) < len(found) else None
    types = _types(found)
    return types.index(name) if types.count(name) == 1 else None


def _types(entries: list[Value]) -> list[Value]:
    return [entry.get("type") if isinstance(entry, dict) else None for entry in entries]
