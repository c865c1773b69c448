"""The path of an error in a recipe, and the keys allowed there, from pydantic's core schema.

pydantic's location of an error also names the chosen member of a union: data.source.parquet.lable, where the user wrote
data.source.lable. The schema shows which parts of a location are such names, for any union in the recipe.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from understudy.errors import InputError

KeyPath = tuple[str | int, ...]
Conflict = tuple[KeyPath, str]
"""The path of a contradiction in a recipe, and the fix."""
Schema = Mapping[str, Any]
"""A core schema of pydantic; its type determines its other keys."""

ANYTHING: Schema = {"type": "any"}


@dataclass(frozen=True)
class Location:
    """A path as the user writes it, and the names that the schema allows there."""

    path: KeyPath
    allowed_keys: tuple[str, ...]
    """The keys of the section that contains the path's last key."""
    members: tuple[str, ...]
    """The names of the members, if the path leads to a tagged union."""


def conflict_of(error: InputError) -> Conflict:
    """The path in the recipe and the fix of an error whose message has both."""
    path, _, fix = str(error).partition(": ")
    return tuple(path.split(".")), fix


def find(model: type[BaseModel], loc: KeyPath) -> Location:
    """The user's location of an error, from pydantic's location in a model."""
    schema: Schema = model.__pydantic_core_schema__
    definitions = {definition["ref"]: definition for definition in schema.get("definitions", ())}
    path: list[str | int] = []
    allowed_keys: tuple[str, ...] = ()
    current = _content(schema, definitions)
    for part in loc:
        if current["type"] in ("union", "tagged-union"):
            current = _content(_member(current, part), definitions)
            continue
        fields = _fields(current)
        path.append(part)
        allowed_keys = tuple(fields)
        current = _content(fields.get(str(part)) or _item(current), definitions)
    members = tuple(current["choices"]) if current["type"] == "tagged-union" else ()
    return Location(tuple(path), allowed_keys, members)


def _content(schema: Schema, definitions: Mapping[str, Schema]) -> Schema:
    """A schema without its wrappers: references, defaults, null, functions, the model of the fields."""
    while True:
        if schema["type"] == "definition-ref":
            schema = definitions[schema["schema_ref"]]
        elif "schema" in schema:
            schema = schema["schema"]
        else:
            return schema


def _fields(schema: Schema) -> dict[str, Schema]:
    """A section's keys, as the user writes them, with their schemas; empty if it is no section."""
    if schema["type"] != "model-fields":
        return {}
    return {field.get("validation_alias", name): field for name, field in schema["fields"].items()}


def _item(schema: Schema) -> Schema:
    """The schema of the items of a list or mapping."""
    items = schema.get("items_schema") or schema.get("values_schema") or ANYTHING
    return items[0] if isinstance(items, list) else items  # a tuple has a list of schemas; here its items share one


def _member(schema: Schema, name: str | int) -> Schema:
    """The schema of a union's member; ANYTHING if members have no names."""
    choices = schema["choices"]
    return choices.get(name, ANYTHING) if isinstance(choices, Mapping) else ANYTHING
