"""Sections of data.source, as in a recipe, and the records read for them."""

from typing import Any

from pydantic import TypeAdapter

from understudy.data.raw import Broken, Raw
from understudy.data.sources.registry import read
from understudy.recipe.sources import Source, SourceSection
from understudy.recipe.tasks import Kind

IMAGES: dict[str, Kind] = {"image": "image", "label": "label"}


def section(**values: Any) -> SourceSection:
    source: SourceSection = TypeAdapter(Source).validate_python(values)
    return source


def records(**values: Any) -> list[Raw | Broken]:
    return list(read(section(**values), IMAGES).records)
