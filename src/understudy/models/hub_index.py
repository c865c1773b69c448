"""The files that a published model's index names, restricted to its folder and file format.

An index is untrusted input from the model's publisher. A path in it could lead to files that the folder's digest does
not cover, and a pickle among safetensors files would be opened although the recipe does not allow it.
"""

import json
from pathlib import Path


def named_files(index: Path) -> list[str]:
    """The files' names, in order.

    Args:
        index: `*.safetensors.index.json`, or `*.bin.index.json`.

    Raises:
        ValueError: it is not an index, or names other files.
    """
    suffix = Path(index.name.removesuffix(".index.json")).suffix
    try:
        content = json.loads(index.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{index.name} is not JSON ({error})") from error
    weight_map = content.get("weight_map") if isinstance(content, dict) else None
    names = list(weight_map.values()) if isinstance(weight_map, dict) else []
    if not names or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{index.name} has no weight_map from tensors to files")
    for name in names:
        if Path(name).name != name or Path(name).suffix != suffix:
            raise ValueError(f"{index.name} names {name!r}, which is no *{suffix} file beside it")
    return sorted(set(names))
