"""pydantic's errors in plain words, at the place that the user wrote."""

import difflib
import json
import re
from collections.abc import Iterable
from itertools import chain
from typing import Any, get_args

from pydantic_core import ErrorDetails

from understudy.recipe import data, objectives, schema
from understudy.recipe.data import Section
from understudy.recipe.schema import SOURCES, Recipe

Place = tuple[str | int, ...]

EXPECTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "string_type": "text",
    "bool_type": "true or false",
    "dict_type": "a section (key: value)",
    "model_type": "a section (key: value)",
    "model_attributes_type": "a section (key: value)",
    "tuple_type": "a list",
    "name": "up to 40 lower-case letters, digits and dashes, a letter first and no dash last",
    "factory": "package.module:function",
    **dict.fromkeys(("cpu", "memory", "shared_memory"), "a quantity as Kubernetes writes it, such as 500m or 16Gi"),
}
BOUNDS = {
    "greater_than": ("greater than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
}
# The names that pydantic puts into a place for the member of a union that it took.
MEMBERS: dict[str | int, type[Section] | None] = {
    "digits": data.DigitsSource,
    "image-folder": data.ImageFolderSource,
    "parquet": data.ParquetSource,
    "text-files": data.TextFilesSource,
    "python-docs": data.PythonDocsSource,
    "architecture": schema.ArchitectureModel,
    "pretrained": schema.PretrainedModel,
    "factory": schema.FactoryModel,
    "degrees": schema.Degrees,
    "labels": objectives.LabelsObjective,
    "logits": objectives.LogitsObjective,
    "shorthand": None,
}

RENAMED = {
    "accumulate": "gradient_accumulation_steps",
    "clip_norm": "max_grad_norm",
    "failures": "max_restarts",
    "grace": "termination_grace_period",
    "hang": "hang_timeout",
}
"""Keys of version 0.1 that have another name now."""


def explain(error: ErrorDetails) -> tuple[Place, str]:
    """Where an error is, as the user writes that place, and what to do about it."""
    place, section = _resolve(error["loc"])
    if error["type"].startswith("union_tag"):
        return (*place, "type"), _member(error["ctx"])
    return place, _reason(error, place, section)


def _reason(error: ErrorDetails, place: Place, section: type[Section] | None) -> str:
    context, got = error.get("ctx", {}), f"got {shown(error['input'])}"
    match error["type"]:
        case "extra_forbidden":
            return _unknown(str(place[-1]), section)
        case "missing":
            return "required, and not there"
        case "literal_error":
            return _choice(context["expected"], error["input"])
        case "string_pattern_mismatch":
            return f"expected {EXPECTED[str(place[-1])]}, {got}"
        case "value_error" | "model_kind":
            return str(context.get("error", error["msg"]))
        case kind if kind in EXPECTED:
            return f"expected {EXPECTED[kind]}, {got}"
        case kind if kind in BOUNDS:
            words, key = BOUNDS[kind]
            return f"must be {words} {context[key]:g}, {got}"
        case _:
            return f"{error['msg'][:1].lower()}{error['msg'][1:]}, {got}"


def _member(context: dict[str, Any]) -> str:
    if "tag" in context:
        return _choice(context["expected_tags"], context["tag"])
    return f"required, and not there; one of {', '.join(chain(*SOURCES.values()))}"


def shown(value: Any) -> str:
    """A value as it would be written, cut where it gets long."""
    if value is None:
        return "nothing (null)"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _resolve(loc: Iterable[str | int]) -> tuple[Place, type[Section] | None]:
    """The place without the names of union members, and the model of the section that its last key stands in."""
    place: list[str | int] = []
    section: type[Section] | None = Recipe
    inner: list[type[Section]] = [Recipe]
    is_union = False
    for part in loc:
        if isinstance(part, int):  # a place in a list, whose section is that of the list
            place.append(part)
            continue
        if is_union:
            inner, is_union = [model] if (model := MEMBERS[part]) else [], False
            continue
        section = inner[0] if inner else None
        place.append(part)
        annotation = _annotation(section, part)
        inner = _sections(annotation)
        is_union = len(inner) > 1 or schema.Degrees in inner
    return tuple(place), section


def _annotation(section: type[Section] | None, key: str | int) -> Any:
    fields = section.model_fields.items() if section else ()
    return next((field.annotation for name, field in fields if key == (field.alias or name)), None)


def _sections(annotation: Any) -> list[type[Section]]:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return [annotation]
    return [section for argument in get_args(annotation) for section in _sections(argument)]


def _unknown(key: str, section: type[Section] | None) -> str:
    known = [field.alias or name for name, field in (section.model_fields if section else {}).items()]
    if RENAMED.get(key) in known:
        return f"unknown key; it is called {RENAMED[key]} now"
    if near := difflib.get_close_matches(key, known, n=1):
        return f"unknown key; did you mean {near[0]}?"
    return f"unknown key; known here: {', '.join(known)}"


def _choice(expected: str, value: Any) -> str:
    near = difflib.get_close_matches(str(value), re.findall(r"'([^']+)'", expected), n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"expected {_plain(expected)}, got {shown(value)}{hint}"


def _plain(choices: str) -> str:
    return choices.replace("'", "")
