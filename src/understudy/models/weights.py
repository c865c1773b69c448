"""A model's weights on disk, in the hub's format: one file, or several and an index, each tensor whole in one of them.

Ranks read the parts of tensors that they keep. They write whole tensors, each rank files of its own at the same time;
what a rank holds of others' parts meanwhile is one file's tensors.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from understudy.errors import UnderstudyError
from understudy.models.facts import WEIGHTS
from understudy.models.parts import kept_part
from understudy.models.weight_files import INDEX, weight_files

SMALLEST, MOST = 256 * 2**20, 32
"""Bytes of a file that is not the only one, and how many there are about at most: who writes one holds it twice."""
TYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""What safetensors calls them in a file's header."""

Form = tuple[list[int], str]
"""Shape and type."""


def form(tensor: Tensor) -> Form:
    """A tensor's shape and type, as a file's header has them."""
    return list(tensor.shape), TYPES[tensor.dtype]


class Weights:
    """The tensors in a folder's open files, by name."""

    def __init__(self, files: Sequence[Any]) -> None:
        self._files = {name: file for file in files for name in file.keys()}  # noqa: SIM118

    @property
    def forms(self) -> dict[str, Form]:
        """What the files' headers say of each tensor."""
        found = {name: file.get_slice(name) for name, file in self._files.items()}
        return {name: (tensor.get_shape(), tensor.get_dtype()) for name, tensor in found.items()}

    def read(self, name: str, into: Tensor) -> Tensor:
        """What this rank keeps of a tensor that has the form of `into`; no other byte is read."""
        if into.ndim == 0:
            return cast("Tensor", self._files[name].get_tensor(name))
        return cast("Tensor", self._files[name].get_slice(name)[kept_part(into)])


@contextmanager
def opened(folder: Path) -> Iterator[Weights]:
    """A saved model's weights.

    Raises:
        UnderstudyError: a file is missing, or none of safetensors.
    """
    from safetensors import SafetensorError, safe_open

    path = folder
    with ExitStack() as stack:
        try:
            files = []
            for path in weight_files(folder):
                files.append(stack.enter_context(safe_open(path, framework="pt")))
            yield Weights(files)
        except (OSError, SafetensorError) as error:
            raise UnderstudyError(
                f"{path}: is no safetensors file ({error}); move its folder away, and run again"
            ) from error


def write_weights(folder: Path, tensors: Mapping[str, Tensor], smallest: int = SMALLEST) -> None:
    """Write tensors, spread over ranks or not. To be called on every rank, with the same names in the same order.

    Args:
        folder: an existing folder.
        tensors: by the names that they get.
        smallest: bytes of a file that is not the only one.
    """
    rank, ranks = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    total = sum(map(_bytes, tensors.values()))
    files = list(_shared_out(tensors, max(smallest, -(-total // MOST))))
    names = [f"model-{number:05}-of-{len(files):05}.safetensors" for number in range(1, len(files) + 1)]
    names = names if len(files) > 1 else [WEIGHTS]
    for first in range(0, len(files), ranks):
        mine: dict[str, Tensor] = {}
        for place in range(first, min(first + ranks, len(files))):
            for name in files[place]:
                whole = _whole(tensors[name])  # every rank takes part
                if place - first == rank:
                    mine[name] = whole.cpu().contiguous()
        if mine:
            _save(mine, folder / names[first + rank])
    if len(files) > 1 and rank == 0:
        places = {tensor: name for name, inside in zip(names, files, strict=True) for tensor in inside}
        index = {"metadata": {"total_size": total}, "weight_map": places}
        (folder / INDEX).write_text(json.dumps(index, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _shared_out(tensors: Mapping[str, Tensor], most: int) -> Iterator[list[str]]:
    """Names, file by file, in their order; a file has at most that many bytes, or a single tensor."""
    names: list[str] = []
    size = 0
    for name, tensor in tensors.items():
        if names and size + _bytes(tensor) > most:
            yield names
            names, size = [], 0
        names.append(name)
        size += _bytes(tensor)
    yield names


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()  # of a DTensor: the whole one's


def _whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _save(tensors: dict[str, Tensor], path: Path) -> None:
    """As OSError when the system refuses, which safetensors puts into the text of an error of its own."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    path.touch()
    mode = path.stat().st_mode  # safetensors makes files that only their owner reads
    try:
        save_file(tensors, path, metadata={"format": "pt"})
    except SafetensorError as error:
        number = re.search(r"os error (\d+)", str(error))
        raise (OSError(int(number[1]), os.strerror(int(number[1]))) if number else error) from error
    path.chmod(mode)
