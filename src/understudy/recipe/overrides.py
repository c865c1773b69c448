"""Overrides: a.b.c=value changes a value of a recipe, and removes values of the file that contradict it."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from understudy.errors import InputError
from understudy.recipe import yaml
from understudy.recipe.errors import shown
from understudy.recipe.roles import STUDENT, TEACHER
from understudy.recipe.tasks import TASKS, default_objectives
from understudy.recipe.yaml import KeyPath, Value, Values

DISTILL_PATH = ("student", "distill")
LENGTHS = {"steps": "epochs", "epochs": "steps"}


@dataclass(frozen=True)
class Override:
    """One a.b.c=value: its label in messages, its path and its value."""

    label: str
    path: KeyPath
    value: Value

    def decides(self, path: KeyPath) -> bool:
        """Whether this override sets the value at a path."""
        return self.path == path[: len(self.path)]


def override(text: str, prefix: str) -> Override:
    """Parse an override.

    Raises:
        InputError: the text is not of the form a.b.c=value, or its value is not YAML.
    """
    label = f"{prefix}{text}"
    name, equals, value = text.partition("=")
    path = tuple(part.strip() for part in name.split("."))
    if not equals or not all(path):
        raise InputError(f"{label}: write it as a.b.c=value")
    document = yaml.parse(value.strip())
    if document.problems:
        raise InputError(f"{label}: {document.problems[0].text}")
    return Override(label, path, document.data)


def split_overrides(text: str) -> list[str]:
    """The overrides in a text: one a.b=v per line, or separated by semicolons."""
    # A semicolon separates only if a.b= follows; otherwise it is part of a value.
    parts = re.split(r"[\n;]\s*(?=[A-Za-z_][\w.-]*\s*=)|\n", text)
    stripped = [part.strip().rstrip(";").rstrip() for part in parts]
    return [part for part in stripped if part]


def apply(data: Values, changes: Sequence[Override]) -> list[Override]:
    """Change the data, and return the overrides with indices for list entries that they name by type.

    Raises:
        InputError: an override names an impossible path.
    """
    applied = [replace(change, path=_set(data, change)) for change in changes]
    for path, train in _trainings(data):
        _drop_overridden(train, path, applied)
    return applied


def _drop_overridden(train: Values, path: KeyPath, changes: Sequence[Override]) -> None:
    """Remove the file's steps or epochs, and shorten its warm-up, where an override replaces them.

    `--set teacher.train.steps=1` tries a recipe out, and users should not have to look up its epochs and warm-up. Two
    overrides, or two values of the file, that contradict each other stay an error.
    """

    def overridden(*keys: str) -> bool:
        return any(change.decides((*path, *keys)) for change in changes)

    for length, alternative in LENGTHS.items():
        if overridden(length) and not overridden(alternative) and train.get(length) is not None:
            train.pop(alternative, None)
    steps, schedule = train.get("steps"), train.get("schedule")
    if not overridden("steps") or overridden("schedule", "warmup") or not isinstance(schedule, dict):
        return
    warmup = schedule.get("warmup")
    if isinstance(steps, int) and isinstance(warmup, int) and warmup >= steps > 0:
        schedule["warmup"] = steps - 1


def _trainings(data: Values) -> Iterator[tuple[KeyPath, Values]]:
    """The sections `train` of all learners, with their paths."""
    teachers = data.get("teachers")
    learners: dict[KeyPath, Value] = {(name,): data.get(name) for name in (TEACHER, STUDENT)}
    learners |= {("teachers", name): value for name, value in (teachers.items() if isinstance(teachers, dict) else ())}
    for path, learner in learners.items():
        if isinstance(learner, dict):
            yield from _trainings_of(path, learner)


def _trainings_of(path: KeyPath, learner: Values) -> Iterator[tuple[KeyPath, Values]]:
    """The sections `train` of a learner, and of its stages."""
    stages = learner.get("stages")
    sections = {(*path, "stages", at): stage for at, stage in enumerate(stages if isinstance(stages, list) else ())}
    for section_path, section in {path: learner, **sections}.items():
        train = section.get("train") if isinstance(section, dict) else None
        if isinstance(train, dict):
            yield (*section_path, "train"), train


def _set(data: Values, change: Override) -> KeyPath:
    """Set the override's value, and return its path with indices for list entries."""
    section: Values | list[Value] = data
    path: list[str | int] = []
    for depth, name in enumerate(change.path[:-1], start=1):
        key = _key(section, name)
        path.append(key)
        inner = _get(section, key)
        if inner is None:
            inner = _default(tuple(path), data.get("task"))
            _assign(section, key, inner)
        if not isinstance(inner, dict | list) or not _has(inner, change.path[depth]):
            outer, inner_path = (".".join(map(str, part)) for part in (change.path[:depth], change.path[depth:]))
            named = _entry_names(inner, outer) or f"set all of it: {outer}={{...}}"
            raise InputError(f"{change.label}: {outer} is {shown(inner)} and has no {inner_path}; {named}")
        section = inner
    key = _key(section, change.path[-1])
    _assign(section, key, change.value)
    return (*path, key)


def _get(section: Values | list[Value], key: str | int) -> Value:
    return section[int(key)] if isinstance(section, list) else section.get(str(key))


def _assign(section: Values | list[Value], key: str | int, value: Value) -> None:
    if isinstance(section, list):
        section[int(key)] = value
    else:
        section[str(key)] = value


def _default(path: KeyPath, task: Value) -> Value:
    """The default of a section that the recipe leaves out, for an override to change."""
    if path == DISTILL_PATH and isinstance(task, str) and task in TASKS:
        return [objective.model_dump(mode="json") for objective in default_objectives(task)]
    return {}


def _has(section: Values | list[Value], name: str | int) -> bool:
    """Whether the section can have a value of this name."""
    return isinstance(section, dict) or _entry(section, str(name)) is not None


def _entry_names(section: Value, outer: str) -> str:
    """The names of the entries in a list of sections, as a hint; empty for other values."""
    types = _types(section) if isinstance(section, list) else []
    # An entry is named by its type, or by its index if two have the same.
    names = [kind if kind and types.count(kind) == 1 else at for at, kind in enumerate(types)]
    return f"name an entry: {', '.join(f'{outer}.{name}' for name in names)}" if any(types) else ""


def _key(section: Values | list[Value], name: str | int) -> str | int:
    entry = _entry(section, str(name)) if isinstance(section, list) else None
    return name if entry is None else entry


def _entry(entries: list[Value], name: str) -> int | None:
    """The index of the entry with this number, or of the only one of this type."""
    if name.isdecimal():
        return int(name) if int(name) < len(entries) else None
    types = _types(entries)
    return types.index(name) if types.count(name) == 1 else None


def _types(entries: list[Value]) -> list[Value]:
    return [entry.get("type") if isinstance(entry, dict) else None for entry in entries]
