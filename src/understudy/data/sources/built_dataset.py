"""Data sets as the datasets library reads a folder of files, with the configurations in the header of its README.md.

The library streams the files and writes no copy of the data to a cache, which could be older than the files. Data is
hostile: a README.md may name any file of this machine, and addresses; only files of the folder are read.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePath
from typing import Any

from understudy.data.sources.arrow_rows import BATCH_ROWS, first_line
from understudy.data.sources.dataset_parts import Folder, Part, Parts, damage, library
from understudy.errors import InputError

FORMATS = ("arrow", "conll", "csv", "imagefolder", "json", "parquet", "text")
"""The builders of the library that only read texts, tables and images: others unpickle or need other libraries."""
CARD = "README.md"
HIDDEN_CARD = ".huggingface.yaml"


def parts(folder: Folder, name: str | None) -> Parts:
    """The files of each split.

    Args:
        folder: the data set's folder.
        name: the configuration; None for the default one.

    Raises:
        InputError: the library cannot read the folder, a configuration is needed or unknown, or the README.md names
            files outside of the folder.
    """
    datasets = library()
    if (folder.root / HIDDEN_CARD).exists():
        raise InputError(f"{folder.location}: {HIDDEN_CARD} is not read. Put its content into the header of {CARD}.")
    with tempfile.TemporaryDirectory() as cache, _input_errors(folder):
        for pattern in patterns(folder.root):
            _check_pattern(folder, pattern)
        config = _config(datasets, folder, name)
        builder = datasets.load_dataset_builder(str(folder.root), name=config, cache_dir=cache)
        _check_builder(builder, folder)
        streams = builder.as_streaming_dataset()
    return {
        str(split): _parts(folder, str(split), stream, builder.config.data_files[split])
        for split, stream in streams.items()
    }


def patterns(root: Path, name: str | None = None) -> list[str]:
    """The patterns for files in the header of a README.md, each from the folder: of all configurations, or of one.

    Raises:
        ValueError: the header is damaged.
    """
    from huggingface_hub import DatasetCard

    card = DatasetCard.load(root / CARD).data.to_dict() if (root / CARD).is_file() else {}
    configs = card.get("configs") or []
    if not isinstance(configs, list) or not all(isinstance(config, dict) for config in configs):
        raise ValueError(f"configs in the header of {CARD} is not a list of sections")
    chosen = [config for config in configs if name in (None, config.get("config_name"))]
    return [
        f"{config['data_dir']}/{pattern}" if config.get("data_dir") else pattern
        for config in chosen
        for pattern in _strings(config.get("data_files", "**" if config.get("data_dir") else []))
    ]


def _strings(value: Any) -> Iterator[str]:
    """The patterns of data_files: a string, or strings in lists and in the key `path` of sections."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from _strings(value.get("path"))
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)


def _check_pattern(folder: Folder, pattern: str) -> None:
    path = PurePath(pattern)
    if ":" in pattern or path.is_absolute() or ".." in path.parts:
        raise InputError(
            f"{folder.location}: {CARD} names {pattern!a}, and only files of the folder itself are read. Download them "
            f"into it, and correct {CARD}."
        )


@contextmanager
def _input_errors(folder: Folder) -> Iterator[None]:
    """Raise errors of the library as InputError at the path, within the context."""
    try:
        yield
    except damage() as error:
        reason = first_line(error) or type(error).__name__
        raise InputError(
            f"{folder.location}: the datasets library cannot read this folder ({reason}). Correct its files, or the "
            f"header of its {CARD}."
        ) from error


def _config(datasets: Any, folder: Folder, name: str | None) -> str | None:
    """The configuration to read.

    Raises:
        InputError: there is no such configuration, or several and no default.
    """
    names = datasets.get_dataset_config_names(str(folder.root))
    if name is None and len(names) > 1 and datasets.get_dataset_default_config_name(str(folder.root)) is None:
        raise InputError(
            f"data.source.name: {folder.path} has the configurations {', '.join(names)}: name one of them."
        )
    if name is not None and name not in names:
        raise InputError(
            f"data.source.name: {folder.path} has no configuration {name}. It has {', '.join(names)}: name one of them."
        )
    return name


def _check_builder(builder: Any, folder: Folder) -> None:
    if builder.name not in FORMATS:
        raise InputError(
            f"{folder.location}: its files have the format {builder.name}, which is not read. Give files of "
            f"{', '.join(FORMATS)}."
        )
    for paths in builder.config.data_files.values():
        for path in paths:
            if not folder.has(path):
                raise InputError(
                    f"{folder.location}: {CARD} names {path}, which is hidden, or no file of the folder. Correct it."
                )


def _parts(folder: Folder, split: str, stream: Any, paths: list[str]) -> list[Part]:
    """A part for each file, or one for all files if the library reads them together."""
    root = folder.root.resolve()
    names = [str(Path(path).relative_to(root)) for path in paths] if stream.num_shards == len(paths) else [split]
    shards = [stream.shard(len(names), index) for index in range(len(names))] if len(names) > 1 else [stream]
    return [Part(name, stream.features, partial(_tables, shard)) for name, shard in zip(names, shards, strict=True)]


def _tables(shard: Any) -> Iterator[Any]:
    for table in shard.with_format("arrow").iter(batch_size=BATCH_ROWS):
        table.validate(full=True)
        yield table
