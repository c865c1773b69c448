"""The YAML of recipes: version 1.2's types (1e-3 is a number, no is text), no duplicate keys, every key's line."""

import math
import re
from dataclasses import dataclass
from typing import TypeAlias

import yaml

KeyPath = tuple[str | int, ...]
Value: TypeAlias = "bool | int | float | str | list[Value] | Values | None"
Values: TypeAlias = dict[str, Value]
"""A section as it was read, without any checks."""

NULL, BOOL, INT, FLOAT, TEXT = (f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str"))
LARGEST = 100_000  # values of a document; aliases of aliases expand to any number of them from a few lines
ALIAS = ("while scanning an alias", "while scanning an anchor")
# The core schema of YAML 1.2. PyYAML implements 1.1, in which 1e-3 is text, no is false and 1:30 is ninety. A pattern
# is tried for values that begin with one of the characters after it.
RESOLVERS = (
    (NULL, re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""]),
    (BOOL, re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")),
    (INT, re.compile(r"^[-+]?[0-9]+$"), list("-+0123456789")),
    (
        FLOAT,
        re.compile(r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"),
        list("-+.0123456789"),
    ),
)  # fmt: skip


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers = {}  # noqa: RUF012 (PyYAML's mechanism; empty, to drop the types of YAML 1.1)


class _Dumper(yaml.SafeDumper):
    """Quotes text that either version of YAML would read as another type."""

    def ignore_aliases(self, data: object) -> bool:
        return True  # the same value twice is written twice, not as *id001


for _tag, _pattern, _first in RESOLVERS:
    _Loader.add_implicit_resolver(_tag, _pattern, _first)
    _Dumper.add_implicit_resolver(_tag, _pattern, _first)


@dataclass(frozen=True)
class Problem:
    """A problem in a text: its line (from 1), its path in the data, and a description."""

    line: int
    path: KeyPath
    text: str


@dataclass(frozen=True)
class Document:
    """The data of one YAML document, and the line of every key and list item."""

    data: Value
    lines: dict[KeyPath, int]
    problems: list[Problem]


def parse(text: str) -> Document:
    """Read one document. Problems are returned, not raised."""
    lines: dict[KeyPath, int] = {}
    problems: list[Problem] = []
    try:
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        text = f"not YAML: {error.problem}; {_fix(error)}"
        return Document(None, {}, [Problem(mark.line + 1 if mark else 1, (), text)])
    except RecursionError:
        return Document(None, {}, [Problem(1, (), "not a recipe: nested too deeply")])
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        return Document(None, {}, [Problem(line, (), f"not YAML: {error.reason}")])
    data = None if node is None else _build(node, (), lines, problems, ())
    return Document(data, lines, problems)


def dump(value: object) -> str:
    """The YAML of plain data, keys in their order."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


def _fix(error: yaml.MarkedYAMLError) -> str:
    """The most likely fix."""
    if error.context in ALIAS:
        return 'a text that begins with * or & has to be in quotes: "*.txt"'
    if "\\t" in str(error.problem):
        return "indent with spaces"
    if "another document" in str(error.problem):
        return "keep one, without ---"
    return "check quotes, brackets, colons and indentation"


def _build(
    node: yaml.Node, path: KeyPath, lines: dict[KeyPath, int], problems: list[Problem], above: tuple[yaml.Node, ...]
) -> Value:
    line = node.start_mark.line + 1
    lines.setdefault(path, line)
    if len(lines) > LARGEST:
        if not problems:
            problems.append(Problem(line, path[:1], f"has more than {LARGEST:,} values"))
        return None
    if node in above:  # a: &x [*x] has no end
        problems.append(Problem(line, path, "an alias inside the value that it refers to"))
        return None
    if isinstance(node, yaml.SequenceNode):
        return [_build(item, (*path, at), lines, problems, (*above, node)) for at, item in enumerate(node.value)]
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, path, lines, problems, (*above, node))
    return _scalar(node, path, problems)


def _mapping(
    node: yaml.MappingNode,
    path: KeyPath,
    lines: dict[KeyPath, int],
    problems: list[Problem],
    above: tuple[yaml.Node, ...],
) -> Values:
    data: Values = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            problems.append(Problem(line, path, "a key must be a word"))
            continue
        inner = (*path, key.value)
        if key.value in data:
            problems.append(Problem(line, inner, f"given twice, here and on line {lines[inner]}"))
            continue
        lines[inner] = line
        data[key.value] = _build(value, inner, lines, problems, above)
    return data


def _scalar(node: yaml.Node, path: KeyPath, problems: list[Problem]) -> Value:
    value, line = str(node.value), node.start_mark.line + 1
    try:
        if node.tag == TEXT:
            return value
        if node.tag == NULL:
            return None
        if node.tag == BOOL:
            return value.lower() == "true"
        if node.tag == INT:
            return int(value)  # refuses more than 4,300 digits, which would take long
        if node.tag == FLOAT:
            return _finite(value, line, path, problems)
    except ValueError:
        problems.append(Problem(line, path, f"{value[:40]} is not a number"))
        return None
    problems.append(Problem(line, path, f"the tag {node.tag} is not understood; leave it out"))
    return None


def _finite(value: str, line: int, path: KeyPath, problems: list[Problem]) -> float | None:
    """A finite number; .inf and .nan are YAML, but no value of a recipe, and JSON cannot express them."""
    number = float(value.replace(".inf", "inf").replace(".nan", "nan"))
    if math.isfinite(number):
        return number
    problems.append(Problem(line, path, f"{value} is not a finite number"))
    return None
