"""The definition of a data source: its section of the recipe, its fields, its reader and its digest.

Each source has a module here that ends in a value SOURCE, and a line in recipe/sources.py. The recipe loads that
module to check a section, so it imports nothing heavy at its top.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from understudy.data.raw import Reading
from understudy.recipe.sources import SourceSection
from understudy.recipe.tasks import KINDS, Kind
from understudy.store.files import Fingerprints

S = TypeVar("S", bound=SourceSection)


@dataclass(frozen=True)
class DataSource(Generic[S]):
    """One source. Its functions raise InputError for errors in its section or its files."""

    section: type[S]
    fields: frozenset[str] | None
    """The fields of its records; None if the recipe names them."""
    read: Callable[[S, Mapping[str, Kind]], Reading]
    """Opens the source: its records in a fixed order, with the fields that the task declares."""
    digest: Callable[[S, Fingerprints], str]
    """A SHA-256 of everything that read() would read, regardless of its location and its time."""
    kinds: frozenset[Kind] = KINDS
    """The kinds of fields that it can have, where the recipe names them."""
