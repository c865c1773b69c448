"""A folder of text files, one document a file."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from understudy.data.raw import Broken, Raw, Reading, Split
from understudy.data.sources import files
from understudy.data.sources.source import DataSource
from understudy.data.sources.splits import sizes, unused
from understudy.recipe.sources import SourceSection
from understudy.recipe.tasks import Kind
from understudy.store.files import Fingerprints


class TextFilesSource(SourceSection):
    """A folder of UTF-8 text files, one document a file; train/ and test/ sub-folders are respected."""

    type: Literal["text-files"]
    path: str
    glob: str = "**/*.txt"
    follow_links: bool = False
    """Whether links may lead out of the path. Links inside it are always followed."""


def read(section: TextFilesSource, _fields: Mapping[str, Kind]) -> Reading:
    """The documents, sorted by name."""
    root, paths = files.find(_selection(section))
    splits = files.own_splits(root)
    names = [path.relative_to(root) for path in paths]
    notes = unused(f"data.source.path: {section.path}", names, splits, labelled=False)
    split_sizes = sizes((splits.get(name.parts[0]), 1) for name in names)
    return Reading(len(paths), _records(root, paths, splits), tuple(notes), split_sizes)


def digest(section: TextFilesSource, fingerprints: Fingerprints) -> str:
    """One SHA-256 over names and contents of the files."""
    return files.digest(_selection(section), fingerprints)


def _selection(section: TextFilesSource) -> files.FileSelection:
    words = f"files that match data.source.glob {section.glob}"
    return files.FileSelection(section.path, section.glob, words, follow_links=section.follow_links)


def _records(root: Path, paths: list[Path], splits: dict[str, Split]) -> Iterator[Raw | Broken]:
    for path in paths:
        folder = path.relative_to(root).parts[0]
        yield files.read_file(root, path, None, splits.get(folder))


SOURCE = DataSource(TextFilesSource, frozenset({"text"}), read, digest)
