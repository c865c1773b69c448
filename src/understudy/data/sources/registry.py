"""The source that a recipe's section is of: what it reads, and what identifies its content in a step's key.

Nothing heavy is imported here: the pipeline asks for identities before it knows that there is work to do.
"""

from typing import Any, cast

from understudy.data.raw import Reading
from understudy.data.sources.source import DataSource
from understudy.recipe.sources import SOURCES, SourceSection, load
from understudy.store.files import Fingerprints


def read(section: SourceSection) -> Reading:
    """Open a source.

    Raises:
        InputError: the path does not exist, holds nothing to read, or is laid out in a way that has two meanings.
    """
    return _source(section).read(section)


def source_identity(section: SourceSection, fingerprints: Fingerprints) -> dict[str, str]:
    """What a step's key says about a source's content: a digest of it.

    A file is read again when its inode says that it was touched (see Fingerprints); the built-in sources are small
    and read every time.

    Raises:
        InputError: the path does not exist or holds nothing to read.
    """
    return {"type": section.type, "sha256": _source(section).digest(section, fingerprints)}


def module_of(section: SourceSection) -> str:
    """The module whose code reads the source: a step's key names it, since no import leads there."""
    return SOURCES[section.type]


def _source(section: SourceSection) -> DataSource[Any]:
    return cast("DataSource[Any]", load(section.type))
