"""Sections of data.source as a recipe has them, and what is read for them."""

from typing import Any

from pydantic import TypeAdapter

from understudy.data.raw import Broken, Raw
from understudy.data.sources.registry import read
from understudy.recipe.sources import Source, SourceSection
from understudy.recipe.tasks import Kind

IMAGES: dict[str, Kind] = {"image": "image", "label": "label"}


def section(**values: Any) -> SourceSection:
    found: SourceSection = TypeAdapter(Source).validate_python(values)
    return found


def records(**values: Any) -> list[Raw | Broken]:
    return list(read(section(**values), IMAGES).records)
