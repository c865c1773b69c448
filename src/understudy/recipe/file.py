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
from understudy.recipe.key_path import Conflict
from understudy.recipe.learners import paths_of, to_key_path
from understudy.recipe.overrides import Override, apply, override
from understudy.recipe.roles import STUDENT, TEACHER
from understudy.recipe.rules import conflicts
from understudy.recipe.schema import Recipe, Student
from understudy.recipe.sources import takes_hub_ids
from understudy.recipe.yaml import KeyPath, Value, Values

# Values that may be paths. A template's always is, and the data's of most sources; the others may be hub ids.
DATA = ("data", "source", "path")
MODEL = ("model", "pretrained")
TEMPLATE = ("data", "chat", "template")
BENCHMARKS = ("evaluate", "lm_eval", "include")
TOKENIZER = ("data", "text", "tokenizer", "pretrained")

SECTIONS = frozenset(field.alias or name for name, field in Recipe.model_fields.items())


@dataclass(frozen=True)
class Source:
    """The origin of a recipe's values, for messages."""

    name: str
    """The file, or the name of another source."""
    lines: Mapping[KeyPath, int]
    """The line of every key and list item in the file."""
    changes: Sequence[Override]

    def error(self, problems: Iterable[Conflict]) -> InputError:
        """All problems as one error, a line each: in the file's order, those of overrides last."""
        located = [(*self._locate(path), _words(path, text)) for path, text in problems]
        return InputError("\n".join(f"{location}: {words}{note}" for _, location, note, words in sorted(located)))

    def located(self, text: str) -> str:
        """A step's message, with file and line added to each line that begins with a path in the recipe."""
        lines = []
        for line in text.splitlines():
            path, colon, words = line.partition(": ")
            key_path = to_key_path(path)
            is_path = colon and key_path[0] in SECTIONS
            lines.append(str(self.error([(key_path, words)])) if is_path else line)
        return "\n".join(lines)

    def _locate(self, path: KeyPath) -> tuple[int, str, str]:
        """The sort key of a path, the override or line that sets it, and a note on overrides inside it."""
        for change in reversed(self.changes):
            if change.decides(path):
                return sys.maxsize, change.label, ""
        deeper = [change for change in self.changes if change.path[: len(path)] == path]
        inside = [change.label for change in deeper] if path else []
        if inside and self.lines and path not in self.lines:  # overrides created it: the file has no such key
            return sys.maxsize, ", ".join(inside), ""
        # A key that the file leaves out has no line. That of the innermost section around it shows where it belongs.
        outwards = (path[:end] for end in range(len(path), -1, -1))
        line = next((self.lines[section_path] for section_path in outwards if section_path in self.lines), 0)
        return line, f"{self.name}:{line}" if line else self.name, f" (with {', '.join(inside)})" if inside else ""


@dataclass(frozen=True)
class Written:
    """A recipe, and the source of its values."""

    recipe: Recipe
    source: Source


class Refused(InputError):
    """A recipe that its schema or its rules refuse."""

    def __init__(self, source: Source, problems: Sequence[Conflict], partial: Recipe | None) -> None:
        super().__init__(str(source.error(problems)))
        self.source, self.problems = source, problems
        self.partial = partial
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
        raise InputError("\n".join(f"{path}:{p.line}: {_words(p.path, p.text)}" for p in document.problems))
    if not isinstance(document.data, dict):
        raise InputError(f"{path}: a recipe is a section with the keys {', '.join(_required())}, ...; see recipes/")
    changes = apply(document.data, [override(text, "--set ") for text in overrides])
    _anchor(document.data, path.parent, changes)
    return _checked(document.data, Source(str(path), document.lines, changes))


def read_values(values: Mapping[str, object], overrides: Sequence[str], name: str) -> Written:
    """Check a recipe that was read before, with overrides.

    Args:
        values: the recipe as plain data.
        overrides: "a.b.c=value", the value in YAML.
        name: of the values, for errors.

    Raises:
        InputError: with one line per problem.
    """
    data = json.loads(json.dumps(values))
    changes = apply(data, [override(text, "overrides ") for text in overrides])
    return _checked(data, Source(name, {}, changes))


def load(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """The recipe of read()."""
    return read(path, overrides).recipe


def from_values(values: Mapping[str, object], overrides: Sequence[str], name: str) -> Recipe:
    """The recipe of read_values()."""
    return read_values(values, overrides, name).recipe


def dump(recipe: Recipe) -> str:
    """The complete recipe as YAML, every default filled in."""
    return yaml.dump(completed(recipe).model_dump(mode="json", by_alias=True))


def schema() -> dict[str, object]:
    """The JSON schema of a recipe, for editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Recipe.model_json_schema(by_alias=True)}


def completed(recipe: Recipe) -> Recipe:
    """The recipe with the defaults that depend on its task or name written out."""
    shape = {name: getattr(recipe, name) for name in ("image", "text", "chat") if recipe.takes(f"data.{name}")}
    generation = {"generation": recipe.generation} if recipe.takes("evaluate.generation") else {}
    names = {"model": recipe.model_name, "experiment": recipe.experiment}
    return recipe.model_copy(
        update={
            "data": recipe.data.model_copy(update=shape),
            "evaluate": recipe.evaluate.model_copy(update={"metrics": recipe.metrics, **generation}),
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
    paths = {
        DATA,
        TEMPLATE,
        BENCHMARKS,
        *(("data_sets", name, *DATA[1:]) for name in (data_sets if isinstance(data_sets, dict) else ())),
    }
    for path in (*paths, TOKENIZER, (TEACHER, *MODEL), (STUDENT, *MODEL), *named):
        section: Value = data
        for key in path[:-1]:
            section = section.get(key) if isinstance(section, dict) else None
        value = section.get(path[-1]) if isinstance(section, dict) else None
        if not isinstance(section, dict) or not isinstance(value, str) or not value:
            continue
        start = Path() if any(change.decides(path) for change in changes) else folder
        always = path in paths and not (path[-1] == DATA[-1] and takes_hub_ids(section.get("type")))
        if always or _is_path(value, start):
            section[path[-1]] = os.path.normpath(start.absolute() / os.path.expanduser(value))


def _is_path(value: str, start: Path) -> bool:
    """Whether a pretrained model is a folder, and not a hub id: it looks like a path, or exists."""
    return value.startswith(("./", "../", "~")) or value in (".", "..") or (start / value).exists()


def _checked(data: Values, source: Source) -> Written:
    recipe, problems = _validated(data)
    if recipe is None or problems:
        raise Refused(source, problems, recipe or _without(data, problems))
    return Written(completed(recipe), source)


def _validated(data: Values) -> tuple[Recipe | None, list[Conflict]]:
    """The recipe, if the schema accepts it, and the problems."""
    try:
        # Through JSON: there strict mode accepts a list for a tuple, but not "3" for a number.
        recipe = Recipe.model_validate_json(json.dumps(data), strict=True)
    except ValidationError as error:
        return None, explanations(error.errors(include_url=False))
    return recipe, list(conflicts(recipe))


def _without(data: Values, problems: Iterable[Conflict]) -> Recipe | None:
    """The recipe without its wrong values; None if something is missing then."""
    remaining: Values = json.loads(json.dumps(data))
    for path, _ in problems:
        section: Value = remaining
        for key in path[:-1]:
            section = section.get(str(key)) if isinstance(section, dict) else None
        if path and isinstance(section, dict):
            section.pop(str(path[-1]), None)
    return _validated(remaining)[0]


def _words(path: KeyPath, text: str) -> str:
    location = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)[1:]
    return f"{location}: {text}" if location else text
