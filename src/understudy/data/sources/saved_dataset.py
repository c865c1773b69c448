"""Data sets that save_to_disk of the datasets library wrote: a folder of Arrow files, or such a folder for each split.

The files are read here and not by the library, which maps all of them, trusts their contents, and follows the names
in state.json out of the folder.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from understudy.data.sources.arrow_rows import BATCH_ROWS
from understudy.data.sources.dataset_parts import Folder, Part, Parts
from understudy.errors import InputError
from understudy.store.files import read_json

SPLITS = "dataset_dict.json"
STATE = "state.json"
SINGLE = "train"
"""The name of a split that has none."""
END = b"\xff\xff\xff\xff\0\0\0\0"
"""The end of an Arrow stream. Readers take a file without it, which lacks rows that were cut off."""


def is_saved(root: Path) -> bool:
    """Whether a folder is such a data set."""
    return (root / SPLITS).is_file() or (root / STATE).is_file()


def parts(folder: Folder) -> Parts:
    """The Arrow files of each split.

    Raises:
        InputError: a file that describes the data set is damaged, or names a file that is not in its folder.
    """
    if not (folder.root / SPLITS).is_file():
        name = _described(folder, STATE).get("_split")
        return {name if isinstance(name, str) and name else SINGLE: _files(folder, Path())}
    names = _described(folder, SPLITS).get("splits")
    if not isinstance(names, list) or not all(isinstance(name, str) and Path(name).name == name for name in names):
        raise InputError(f"{folder.location}: {SPLITS} names no splits. Save the data set again.")
    return {name: _files(folder, Path(name)) for name in names}


def _files(folder: Folder, split: Path) -> list[Part]:
    entries = _described(folder, str(split / STATE)).get("_data_files")
    names = [str(entry.get("filename")) if isinstance(entry, dict) else "nothing" for entry in entries or ()]
    for name in names:
        if Path(name).name != name or not folder.has(str(split / name)):
            raise InputError(
                f"{folder.location}: {split / STATE} names {name}, which is no file beside it. Save the data set again."
            )
    return [Part(str(split / name), None, partial(_tables, folder.root / split / name)) for name in names]


def _described(folder: Folder, name: str) -> dict[str, Any]:
    """The content of a JSON file."""
    content = read_json(folder.root / name) if folder.has(name) else None
    if not isinstance(content, dict):
        raise InputError(f"{folder.location}: {name} is missing or damaged. Save the data set again.")
    return content


def _tables(path: Path) -> Iterator[Any]:
    """The batches of an Arrow stream, each validated: offsets of a damaged one would lead anywhere in memory."""
    import pyarrow as pa

    with pa.memory_map(str(path)) as source:
        with pa.ipc.open_stream(source) as reader:
            for batch in reader:
                batch.validate(full=True)
                for start in range(0, batch.num_rows, BATCH_ROWS):
                    yield pa.Table.from_batches([batch.slice(start, BATCH_ROWS)])
        source.seek(max(source.size() - len(END), 0))
        if source.read() != END:
            raise ValueError("the end of the file is missing")
