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


def write_weights(
    folder: Path,
    tensors: Mapping[str, Tensor],
    smallest: int = SMALLEST,
    stages: dist.ProcessGroup | None = None,
    copies: dist.ProcessGroup | None = None,
    kind: torch.dtype | None = None,
) -> None:
    """Write tensors, spread over ranks or not. To be called on every rank.

    Args:
        folder: an existing folder.
        tensors: by the names that they get; the same ones in the same order on the ranks of `copies`.
        smallest: bytes of a file that is not the only one.
        stages: the ranks with other tensors; of those that several have, the first one's are written.
        copies: the ranks with the same tensors, or parts of them; default: all.
        kind: what floating-point tensors are written in, converted when their file is; default: their own type.
    """
    kinds = {name: kind if kind and tensor.is_floating_point() else tensor.dtype for name, tensor in tensors.items()}
    sizes = {name: tensor.numel() * kinds[name].itemsize for name, tensor in tensors.items()}  # of DTensors: the whole
    every = _gathered(sizes, stages)
    total = sum(sum(sizes.values()) for sizes in every)
    files = [list(_shared_out(sizes, max(smallest, -(-total // MOST)))) for sizes in every]
    count = sum(map(len, files))
    names = [f"model-{number:05}-of-{count:05}.safetensors" for number in range(1, count + 1)]
    names = names if count > 1 else [WEIGHTS]
    start = sum(map(len, files[: stages.rank()])) if stages else 0
    mine = files[stages.rank() if stages else 0]
    _write_files(folder, tensors, kinds, dict(zip(names[start:], mine, strict=False)), copies)
    if count > 1 and (not dist.is_initialized() or dist.get_rank() == 0):
        inside = [file for stage in files for file in stage]
        places = {tensor: name for name, file in zip(names, inside, strict=True) for tensor in file}
        index = {"metadata": {"total_size": total}, "weight_map": places}
        (folder / INDEX).write_text(json.dumps(index, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _gathered(sizes: dict[str, int], stages: dist.ProcessGroup | None) -> list[dict[str, int]]:
    """What each stage writes: bytes by name."""
    if stages is None or stages.size() == 1:
        return [sizes]
    every: list[Any] = [None] * stages.size()
    dist.all_gather_object(every, sizes, group=stages)
    seen: set[str] = set()
    for stage in every:
        for name in seen & stage.keys():
            del stage[name]
        seen |= stage.keys()
    return every


def _write_files(
    folder: Path,
    tensors: Mapping[str, Tensor],
    kinds: Mapping[str, torch.dtype],
    files: Mapping[str, list[str]],
    copies: dist.ProcessGroup | None,
) -> None:
    """Write files with these tensors in them, as many at a time as there are ranks."""
    rank, ranks = (dist.get_rank(copies), dist.get_world_size(copies)) if dist.is_initialized() else (0, 1)
    names = list(files)
    for first in range(0, len(names), ranks):
        mine: dict[str, Tensor] = {}
        for place, file in enumerate(names[first : first + ranks]):
            for name in files[file]:
                whole = _whole(tensors[name])  # every rank takes part
                if place == rank:
                    mine[name] = whole.cpu().to(kinds[name]).contiguous()
        if mine:
            _save(mine, folder / names[first + rank])


def _shared_out(sizes: Mapping[str, int], most: int) -> Iterator[list[str]]:
    """Names, file by file, in their order; a file has at most that many bytes, or a single tensor."""
    names: list[str] = []
    held = 0
    for name, size in sizes.items():
        if names and held + size > most:
            yield names
            names, held = [], 0
        names.append(name)
        held += size
    if names:
        yield names


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
