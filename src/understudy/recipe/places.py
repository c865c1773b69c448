"""Where in a recipe an error is, and what is allowed there, from the schema that pydantic checks recipes with.

pydantic's place of an error also names the member of a union that it took: data.source.parquet.lable, where the user
wrote data.source.lable. The schema tells which parts of a place are such names, whatever unions the recipe has.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

Place = tuple[str | int, ...]
Conflict = tuple[Place, str]
"""Where a recipe contradicts itself, and the fix."""
Schema = Mapping[str, Any]
"""A core schema of pydantic; its type says which other keys it has."""

ANYTHING: Schema = {"type": "any"}


@dataclass(frozen=True)
class Location:
    """A place as the user writes it, and what the schema knows of it."""

    place: Place
    known: tuple[str, ...]
    """The keys of the section that the place's last key stands in."""
    members: tuple[str, ...]
    """The names of the members, where a union by name stands at the place."""


def find(model: type[BaseModel], loc: Place) -> Location:
    """The location that pydantic means by the place of an error in a model."""
    schema: Schema = model.__pydantic_core_schema__
    definitions = {found["ref"]: found for found in schema.get("definitions", ())}
    place: list[str | int] = []
    known: tuple[str, ...] = ()
    here = _content(schema, definitions)
    for part in loc:
        if here["type"] in ("union", "tagged-union"):
            here = _content(_member(here, part), definitions)
            continue
        fields = _fields(here)
        place.append(part)
        known = tuple(fields)
        here = _content(fields.get(str(part)) or _item(here), definitions)
    members = tuple(here["choices"]) if here["type"] == "tagged-union" else ()
    return Location(tuple(place), known, members)


def _content(schema: Schema, definitions: Mapping[str, Schema]) -> Schema:
    """A schema without what is wrapped around it: references, defaults, null, functions, the model of the fields."""
    while True:
        if schema["type"] == "definition-ref":
            schema = definitions[schema["schema_ref"]]
        elif "schema" in schema:
            schema = schema["schema"]
        else:
            return schema


def _fields(schema: Schema) -> dict[str, Schema]:
    """A section's keys, as the user writes them, with their schemas; none where there is no section."""
    if schema["type"] != "model-fields":
        return {}
    return {field.get("validation_alias", name): field for name, field in schema["fields"].items()}


def _item(schema: Schema) -> Schema:
    """The schema of what lies in a list or a mapping."""
    found = schema.get("items_schema") or schema.get("values_schema") or ANYTHING
    return found[0] if isinstance(found, list) else found  # a tuple has a list of them; here all are one


def _member(schema: Schema, name: str | int) -> Schema:
    """The schema of a union's member; what it is of one that has no name is not known."""
    choices = schema["choices"]
    return choices.get(name, ANYTHING) if isinstance(choices, Mapping) else ANYTHING
