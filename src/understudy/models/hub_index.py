"""Which files the index of a published model names: of its own folder and its own kind, and no others.

An index comes from whoever made the model. A path in it would lead to files that no digest of the folder covers, and a
pickle among files of safetensors would be opened where a recipe allows none.
"""

import json
from pathlib import Path


def named_files(index: Path) -> list[str]:
    """The files' names, in order.

    Args:
        index: `*.safetensors.index.json`, or `*.bin.index.json`.

    Raises:
        ValueError: it is no index, or names something else.
    """
    suffix = Path(index.name.removesuffix(".index.json")).suffix
    try:
        found = json.loads(index.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{index.name} is no JSON ({error})") from error
    places = found.get("weight_map") if isinstance(found, dict) else None
    names = list(places.values()) if isinstance(places, dict) else []
    if not names or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{index.name} has no weight_map from tensors to files")
    for name in names:
        if Path(name).name != name or Path(name).suffix != suffix:
            raise ValueError(f"{index.name} names {name!r}, which is no *{suffix} file beside it")
    return sorted(set(names))
