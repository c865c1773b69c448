"""The weight files of a saved model, determined without torch from file names and the index."""

import re
from pathlib import Path

from understudy.errors import UnderstudyError
from understudy.models.facts import WEIGHTS
from understudy.store.files import read_json

INDEX = f"{WEIGHTS}.index.json"
ONE_OF = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")


def holds_weights(name: str) -> bool:
    """Whether a file of this name holds weights or their index."""
    return name in {WEIGHTS, INDEX} or ONE_OF.fullmatch(name) is not None


def weight_files(folder: Path) -> tuple[Path, ...]:
    """A saved model's weight files, in order.

    Raises:
        UnderstudyError: the files are not those that the index names.
    """
    found = {path.name for path in folder.iterdir() if holds_weights(path.name)}
    if found == {WEIGHTS}:
        return (folder / WEIGHTS,)
    index = read_json(folder / INDEX)
    places = index.get("weight_map") if isinstance(index, dict) else None
    named = {str(name) for name in places.values()} if isinstance(places, dict) else set()
    if not named or WEIGHTS in named or {*named, INDEX} != found:
        raise UnderstudyError(
            f"{folder}: its weights are not in {WEIGHTS}, nor in those that {INDEX} names; move the folder "
            "away, and run again"
        )
    return tuple(folder / name for name in sorted(named))


def weight_bytes(folder: Path) -> int:
    """The size of a saved model's weights on disk, in bytes."""
    return sum(path.stat().st_size for path in weight_files(folder))
