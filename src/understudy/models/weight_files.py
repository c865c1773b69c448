"""The weight files of a saved model, determined without torch from file names and the index."""

import re
from pathlib import Path

from understudy.errors import UnderstudyError
from understudy.models.facts import WEIGHTS
from understudy.store.files import read_json

INDEX = f"{WEIGHTS}.index.json"
SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")


def is_weight_file(name: str) -> bool:
    """Whether a file of this name contains weights or their index."""
    return name in {WEIGHTS, INDEX} or SHARD.fullmatch(name) is not None


def weight_files(folder: Path) -> tuple[Path, ...]:
    """A saved model's weight files, in order.

    Raises:
        UnderstudyError: the files are not those that the index names.
    """
    present = {path.name for path in folder.iterdir() if is_weight_file(path.name)}
    if present == {WEIGHTS}:
        return (folder / WEIGHTS,)
    index = read_json(folder / INDEX)
    weight_map = index.get("weight_map") if isinstance(index, dict) else None
    indexed = {str(name) for name in weight_map.values()} if isinstance(weight_map, dict) else set()
    if not indexed or WEIGHTS in indexed or {*indexed, INDEX} != present:
        raise UnderstudyError(
            f"{folder}: its weights are neither in {WEIGHTS} nor in the files that {INDEX} names; move the folder "
            "away, and run again"
        )
    return tuple(folder / name for name in sorted(indexed))


def weight_bytes(folder: Path) -> int:
    """The size of a saved model's weights on disk, in bytes."""
    return sum(path.stat().st_size for path in weight_files(folder))
