"""The data sources that a recipe can name, each with its module.

The recipe is a layer below the data and imports none of it. A source's module is loaded by its path, like an entry
point, and has a value SOURCE: the recipe's section of the source, and the fields of its records.
"""

import importlib
from collections.abc import Mapping
from typing import Annotated, ClassVar, Protocol, Union

from pydantic import Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema

from understudy.recipe.section import Section
from understudy.recipe.tasks import Kind
from understudy.recipe.tasks import load as load_task

SOURCES = {
    "digits": "understudy.data.sources.digits",
    "image-folder": "understudy.data.sources.image_folder",
    "parquet": "understudy.data.sources.parquet",
    "csv": "understudy.data.sources.csv",
    "jsonl": "understudy.data.sources.jsonl",
    "datasets": "understudy.data.sources.datasets",
    "text-files": "understudy.data.sources.text_files",
    "python-docs": "understudy.data.sources.python_docs",
    "python-questions": "understudy.data.sources.python_questions",
}


class SourceSection(Section):
    """The section data.source. Its type names the source, which defines the other keys.

    A relative `path` starts at the recipe's folder.
    """

    path_may_be_hub_id: ClassVar[bool] = False
    """Whether a `path` that is no folder is a hub id."""

    type: str


class RecipeSource(Protocol):
    """A source, as the recipe sees it."""

    @property
    def section(self) -> type[SourceSection]:
        """The model of its section."""

    @property
    def fields(self) -> frozenset[str] | None:
        """The fields of its records; None if the recipe names them."""

    @property
    def kinds(self) -> frozenset[Kind]:
        """The kinds of fields that it can have, where the recipe names them."""


def load(name: str) -> RecipeSource:
    """A source by its name in SOURCES."""
    source: RecipeSource = importlib.import_module(SOURCES[name]).SOURCE
    return source


def takes_hub_ids(name: object) -> bool:
    """Whether the path of a source may be a hub id."""
    return isinstance(name, str) and name in SOURCES and load(name).section.path_may_be_hub_id


def serving(task: str) -> list[str]:
    """The names of the sources whose records have all fields that a task needs."""
    required = {field: kind for field, kind in load_task(task).FIELDS.items() if kind != "optional text"}
    return [name for name in SOURCES if _has(load(name), required)]


def _has(source: RecipeSource, required: Mapping[str, Kind]) -> bool:
    if source.fields is None:
        return source.kinds.issuperset(required.values())
    return source.fields.issuperset(required)


class _OneOfSources:
    """Makes a section a union of the sources' sections for pydantic, discriminated by type."""

    def __get_pydantic_core_schema__(self, _section: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        sections = tuple(load(name).section for name in SOURCES)
        return handler.generate_schema(Annotated[Union[sections], Field(discriminator="type")])  # noqa: UP007


Source = Annotated[SourceSection, _OneOfSources()]
