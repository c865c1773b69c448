"""Which files hold a saved model's weights: told without torch, and from their names and the index alone."""

import re
from pathlib import Path

from understudy.errors import UnderstudyError
from understudy.models.facts import WEIGHTS
from understudy.store.files import read_json

INDEX = f"{WEIGHTS}.index.json"
ONE_OF = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")


def holds_weights(name: str) -> bool:
    """Whether a file of this name holds weights, or says which do."""
    return name in {WEIGHTS, INDEX} or ONE_OF.fullmatch(name) is not None


def weight_files(folder: Path) -> tuple[Path, ...]:
    """A saved model's files with weights, in order.

    Raises:
        UnderstudyError: there are others than the index names, or fewer.
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
    """Bytes of a saved model's weights on disk."""
    return sum(path.stat().st_size for path in weight_files(folder))
