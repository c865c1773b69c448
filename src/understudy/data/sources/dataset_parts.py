"""The parts of a data set of the datasets library: its folder, and the Arrow tables of each file of a split."""

import os
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from understudy.data.sources import files
from understudy.errors import InputError


@dataclass(frozen=True)
class Folder:
    """The folder of a data set."""

    path: str
    """The recipe's data.source.path."""
    root: Path
    files: frozenset[str]
    """The real paths of its files, which are those that its digest covers; no others are read."""

    @property
    def location(self) -> str:
        """The beginning of messages."""
        return f"data.source.path: {self.path}"

    def has(self, path: str) -> bool:
        """Whether a path, which may be relative to the folder, leads to one of its files."""
        return os.path.realpath(self.root / path) in self.files


@dataclass(frozen=True)
class Part:
    """A file of a split, or all files of it."""

    name: str
    """The file's path in the folder; without one, the split's name."""
    features: Any
    """The library's features; None if the tables alone have them."""
    tables: Callable[[], Iterator[Any]]
    """Opens it: its tables, of BATCH_ROWS rows at most. Raises damage()."""


Parts = Mapping[str, Sequence[Part]]
"""The parts of each split of a data set, by the split's name."""


def selection(path: str, follow_links: bool = False) -> files.FileSelection:
    """The files of a folder, whose contents are the identity of the data set: all but hidden ones."""
    return files.FileSelection(path, "**/*", "files", follow_links=follow_links)


def folder(path: str, chosen: files.FileSelection) -> Folder:
    """The folder of a data set.

    Args:
        path: the recipe's data.source.path.
        chosen: its files.

    Raises:
        InputError: it does not exist, is empty, or has a loading script or a link that leads out of it.
    """
    root, paths = files.find(chosen)
    script = root / f"{Path(path).name}.py"
    if script in paths:
        raise InputError(
            f"data.source.path: {path} has a loading script, {script.name}, and code of a data set is never run. "
            "Give a folder with its data, as Parquet, CSV, JSON or Arrow files, or as save_to_disk of the datasets "
            "library writes it."
        )
    return Folder(path, root, frozenset(os.path.realpath(path) for path in paths))


def library() -> Any:
    """The datasets library, without messages and progress bars of its own.

    Raises:
        InputError: it is not installed.
    """
    try:
        import datasets
    except ModuleNotFoundError as error:
        raise InputError(
            "data.source.type: datasets needs the library of this name. Install it: pip install understudy[datasets]"
        ) from error
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)
    datasets.disable_progress_bars()
    return datasets


def damage() -> tuple[type[Exception], ...]:
    """The errors of readers for damaged files; ImportError is a format whose reader is not installed."""
    import pyarrow as pa
    from datasets.exceptions import DatasetsError

    named: tuple[type[Exception], ...] = (
        pa.ArrowException,
        DatasetsError,
        ValueError,
        OSError,
        TypeError,
        LookupError,
        AttributeError,
    )
    return (*named, EOFError, ImportError, RuntimeError, zlib.error, zipfile.BadZipFile)
