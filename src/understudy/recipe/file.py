"""A Recipe from a file and overrides, and back. All problems are reported together, with line and path."""

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from understudy.errors import InputError
from understudy.recipe import yaml
from understudy.recipe.errors import explanations
from understudy.recipe.learners import paths_of, place_of
from understudy.recipe.overrides import Override, apply, override
from understudy.recipe.places import Conflict
from understudy.recipe.roles import STUDENT, TEACHER
from understudy.recipe.rules import conflicts
from understudy.recipe.schema import Recipe, Student
from understudy.recipe.yaml import Place, Value, Values

# Values that may be paths. The data's always is; the others may be hub ids.
DATA = ("data", "source", "path")
MODEL = ("model", "pretrained")
TOKENIZER = ("data", "text", "tokenizer", "pretrained")

SECTIONS = frozenset(field.alias or name for name, field in Recipe.model_fields.items())


@dataclass(frozen=True)
class Source:
    """The origin of a recipe's values, for messages."""

    name: str
    """The file, or the name of another source."""
    lines: Mapping[Place, int]
    """The line of every key and list item in the file."""
    changes: Sequence[Override]

    def error(self, found: Iterable[Conflict]) -> InputError:
        """All problems as one error: a line for each, in the file's order, and those of overrides at the end."""
        located = [(*self._locate(place), _words(place, text)) for place, text in found]
        return InputError("\n".join(f"{where}: {words}{also}" for _, where, also, words in sorted(located)))

    def located(self, text: str) -> str:
        """A step's message, with file and line added to each line that begins with a path in the recipe."""
        lines = []
        for line in text.splitlines():
            place, colon, words = line.partition(": ")
            keys = place_of(place)
            known = colon and keys[0] in SECTIONS
            lines.append(str(self.error([(keys, words)])) if known else line)
        return "\n".join(lines)

    def _locate(self, place: Place) -> tuple[int, str, str]:
        """The sort key and the override or line of a place, and the overrides that changed something inside it."""
        for change in reversed(self.changes):
            if change.decides(place):
                return sys.maxsize, change.label, ""
        deeper = [change for change in self.changes if change.place[: len(place)] == place]
        inside = [change.label for change in deeper] if place else []
        if inside and self.lines and place not in self.lines:  # overrides created it: the file has no such key
            return sys.maxsize, ", ".join(inside), ""
        # A key that the file leaves out has no line. That of the innermost section around it shows where it belongs.
        outwards = (place[:end] for end in range(len(place), -1, -1))
        line = next((self.lines[around] for around in outwards if around in self.lines), 0)
        return line, f"{self.name}:{line}" if line else self.name, f" (with {', '.join(inside)})" if inside else ""


@dataclass(frozen=True)
class Written:
    """A recipe, and the source of its values."""

    recipe: Recipe
    source: Source


class Refused(InputError):
    """A recipe that its schema or its rules refuse."""

    def __init__(self, source: Source, problems: Sequence[Conflict], rest: Recipe | None) -> None:
        super().__init__(str(source.error(problems)))
        self.source, self.problems = source, problems
        self.rest = rest
        """The recipe without the wrong values, if it is complete: further checks run on it, and all report together."""


def read(path: Path, overrides: Sequence[str] = ()) -> Written:
    """Read and check a recipe.

    Args:
        path: the YAML file. Relative paths in it start at its folder.
        overrides: "a.b.c=value", the value in YAML. Relative paths in them start at the working directory.

    Raises:
        InputError: with one line per problem.
    """
    document = yaml.parse(_text(path))
    if document.problems:
        raise InputError("\n".join(f"{path}:{p.line}: {_words(p.place, p.text)}" for p in document.problems))
    if not isinstance(document.data, dict):
        raise InputError(f"{path}: a recipe is a section with the keys {', '.join(_required())}, ...; see recipes/")
    changes = apply(document.data, [override(text, "--set ") for text in overrides])
    _anchor(document.data, path.parent, changes)
    return _checked(document.data, Source(str(path), document.lines, changes))


def read_values(values: Mapping[str, object], overrides: Sequence[str], where: str) -> Written:
    """Check a recipe that was read before, with overrides.

    Args:
        values: the recipe as plain data.
        overrides: "a.b.c=value", the value in YAML.
        where: the name of the values in an error.

    Raises:
        InputError: with one line per problem.
    """
    data = json.loads(json.dumps(values))
    changes = apply(data, [override(text, "overrides ") for text in overrides])
    return _checked(data, Source(where, {}, changes))


def load(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """The recipe of read()."""
    return read(path, overrides).recipe


def from_values(values: Mapping[str, object], overrides: Sequence[str], where: str) -> Recipe:
    """The recipe of read_values()."""
    return read_values(values, overrides, where).recipe


def dump(recipe: Recipe) -> str:
    """The complete recipe as YAML, every default filled in."""
    return yaml.dump(completed(recipe).model_dump(mode="json", by_alias=True))


def schema() -> dict[str, object]:
    """The JSON schema of a recipe, for editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Recipe.model_json_schema(by_alias=True)}


def completed(recipe: Recipe) -> Recipe:
    """The recipe with the defaults that depend on its task or name written out."""
    shape = {name: getattr(recipe, name) for name in ("image", "text") if recipe.takes(f"data.{name}")}
    names = {"model": recipe.model_name, "experiment": recipe.experiment}
    return recipe.model_copy(
        update={
            "data": recipe.data.model_copy(update=shape),
            "evaluate": recipe.evaluate.model_copy(update={"metrics": recipe.metrics}),
            "gate": recipe.gate.model_copy(update={"metric": recipe.gate_metric}),
            STUDENT: _completed_student(recipe),
            "register_": recipe.register_.model_copy(update=names),
        }
    )


def _completed_student(recipe: Recipe) -> Student:
    """The student with the default objectives of its trainings."""
    paths = paths_of(recipe, STUDENT)
    if recipe.student.stages is None:
        return recipe.student.model_copy(update={"distill": recipe.objectives_of(paths[0])})
    stages = [recipe.trainings[path].model_copy(update={"distill": recipe.objectives_of(path)}) for path in paths]
    return recipe.student.model_copy(update={"stages": tuple(stages)})


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not a text file in UTF-8 (byte {error.start})") from error
    except OSError as error:
        raise InputError(f"{path}: cannot read this recipe ({os.strerror(error.errno or 0)})") from error


def _required() -> list[str]:
    return [name for name, field in Recipe.model_fields.items() if field.is_required() or name == TEACHER]


def _anchor(data: Values, folder: Path, changes: Sequence[Override]) -> None:
    """Make relative paths absolute: steps, ranks and pods run in other folders."""
    teachers = data.get("teachers")
    named = [("teachers", name, *MODEL) for name in (teachers if isinstance(teachers, dict) else ())]
    data_sets = data.get("data_sets")
    paths = {DATA, *(("data_sets", name, *DATA[1:]) for name in (data_sets if isinstance(data_sets, dict) else ()))}
    for place in (*paths, TOKENIZER, (TEACHER, *MODEL), (STUDENT, *MODEL), *named):
        section: Value = data
        for key in place[:-1]:
            section = section.get(key) if isinstance(section, dict) else None
        value = section.get(place[-1]) if isinstance(section, dict) else None
        if not isinstance(section, dict) or not isinstance(value, str) or not value:
            continue
        start = Path() if any(change.decides(place) for change in changes) else folder
        if place in paths or _is_path(value, start):
            section[place[-1]] = os.path.normpath(start.absolute() / os.path.expanduser(value))


def _is_path(value: str, start: Path) -> bool:
    """Whether a pretrained model is a folder, and not a hub id: it looks like a path, or exists."""
    return value.startswith(("./", "../", "~")) or value in (".", "..") or (start / value).exists()


def _checked(data: Values, source: Source) -> Written:
    recipe, found = _validated(data)
    if recipe is None or found:
        raise Refused(source, found, recipe or _without(data, found))
    return Written(completed(recipe), source)


def _validated(data: Values) -> tuple[Recipe | None, list[Conflict]]:
    """The recipe, if the schema accepts it, and the problems."""
    try:
        # Through JSON: there strict mode accepts a list for a tuple, but not "3" for a number.
        recipe = Recipe.model_validate_json(json.dumps(data), strict=True)
    except ValidationError as error:
        return None, explanations(error.errors(include_url=False))
    return recipe, list(conflicts(recipe))


def _without(data: Values, found: Iterable[Conflict]) -> Recipe | None:
    """The recipe without its wrong values; None if something is missing then."""
    left: Values = json.loads(json.dumps(data))
    for place, _ in found:
        section: Value = left
        for key in place[:-1]:
            section = section.get(str(key)) if isinstance(section, dict) else None
        if place and isinstance(section, dict):
            section.pop(str(place[-1]), None)
    return _validated(left)[0]


def _words(place: Place, text: str) -> str:
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)[1:]
    return f"{path}: {text}" if path else text
