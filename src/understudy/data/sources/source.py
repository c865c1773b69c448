"""What a data source is: its section of the recipe, the tasks that it serves, its reader and its identity.

Each source has a module here that ends in a value SOURCE, and a line in recipe/sources.py. The recipe loads that module
to check a section, so it imports nothing heavy at its top.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from understudy.data.raw import Reading
from understudy.recipe import Task
from understudy.recipe.sources import SourceSection
from understudy.store.files import Fingerprints

S = TypeVar("S", bound=SourceSection)


@dataclass(frozen=True)
class DataSource(Generic[S]):
    """One source. What is wrong with its section or its files, its functions raise as InputError."""

    section: type[S]
    tasks: tuple[Task, ...]
    read: Callable[[S], Reading]
    """Opens the source: its records in a fixed order."""
    digest: Callable[[S, Fingerprints], str]
    """A SHA-256 of all that read() would read, wherever it lies and whenever it was written."""
