"""The source of a recipe's section: its records, and the identity of its content in a step's key.

Nothing heavy is imported here: the pipeline reads identities before it decides whether there is work to do.
"""

from collections.abc import Mapping
from typing import Any, cast

from understudy.data.raw import Reading
from understudy.data.sources.source import DataSource
from understudy.recipe.sources import SOURCES, SourceSection, load
from understudy.recipe.tasks import Kind
from understudy.store.files import Fingerprints


def read(section: SourceSection, fields: Mapping[str, Kind]) -> Reading:
    """Open a source, whose records have the fields that a task declares.

    Raises:
        InputError: the path does not exist, has nothing to read, or has an ambiguous layout.
    """
    return _source(section).read(section, fields)


def source_identity(section: SourceSection, fingerprints: Fingerprints) -> dict[str, str]:
    """The identity of a source's content in a step's key: a digest of it.

    A file is read again when its inode has changed (see Fingerprints); the built-in sources are small and read every
    time.

    Raises:
        InputError: the path does not exist or has nothing to read.
    """
    return {"type": section.type, "sha256": _source(section).digest(section, fingerprints)}


def module_of(section: SourceSection) -> str:
    """The module whose code reads the source; it is part of a step's key, since no import leads there."""
    return SOURCES[section.type]


def _source(section: SourceSection) -> DataSource[Any]:
    return cast("DataSource[Any]", load(section.type))
