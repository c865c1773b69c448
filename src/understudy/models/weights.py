"""A model's weights on disk, in the hub's format: one file, or several with an index; each tensor is whole in one file.

Ranks read only their parts of tensors. They write whole tensors, each rank to separate files in parallel. Meanwhile a
rank has the gathered tensors of one file in memory.
"""

import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from understudy.errors import UnderstudyError
from understudy.models.facts import WEIGHTS
from understudy.models.parts import full_tensor, local_slices, local_tensor
from understudy.models.weight_files import INDEX, weight_files

SMALLEST, MOST = 256 * 2**20, 32
"""The lowest size limit of a file in bytes, and about the most files. A rank holds the file that it writes twice."""
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
"""Names of types in a safetensors header."""
BY_NAME = {name: kind for kind, name in TYPES.items()}
AT_A_TIME = 2**22
"""Elements that are converted at a time."""

Form = tuple[list[int], str]
"""Shape and type."""


def form(tensor: Tensor) -> Form:
    """A tensor's shape and type, in the format of a file's header."""
    return list(tensor.shape), TYPES[tensor.dtype]


@dataclass(frozen=True)
class Later:
    """A tensor that is computed when it is written, so that not all are in memory together."""

    shape: torch.Size
    dtype: torch.dtype
    make: Callable[[], Tensor]
    """Computes the tensor, which may be sharded. Called on every rank."""

    def numel(self) -> int:
        """The number of elements."""
        return self.shape.numel()


class Weights:
    """The tensors in a folder's open files, by name.

    Args:
        files: descriptor of each, and its safetensors object, which has validated the header.
    """

    def __init__(self, files: Sequence[tuple[int, Any]]) -> None:
        self._files: dict[str, Any] = {}
        self._places: dict[str, tuple[int, int]] = {}
        for descriptor, file in files:
            self._files |= dict.fromkeys(file.keys(), file)
            self._places |= {name: (descriptor, start) for name, start in _starts(descriptor).items()}
        found = {name: file.get_slice(name) for name, file in self._files.items()}
        self.forms: dict[str, Form] = {name: (one.get_shape(), one.get_dtype()) for name, one in found.items()}
        """Shape and type of each tensor, from the files' headers."""

    def rows(self, name: str, first: int, last: int) -> Tensor:
        """Rows first to last - 1 of a tensor, in the file's type."""
        found: Tensor = self._files[name].get_slice(name)[first:last]
        return found

    def read(self, name: str, into: Tensor) -> None:
        """Read this rank's part of a tensor, whose shape is the file's, and no other bytes.

        A contiguous part is read directly into the tensor's memory, in one pass. A part of each row is copied from a
        memory mapping of the file.
        """
        part, own = local_slices(into), local_tensor(into).detach()
        in_rows = any(rows != slice(0, size) for rows, size in zip(part[1:], into.shape[1:], strict=True))
        if in_rows or not own.is_contiguous():
            own.copy_(self._files[name].get_slice(name)[part])
            return
        descriptor, start = self._places[name]
        stored = BY_NAME[self.forms[name][1]]
        first = part[0].start * math.prod(into.shape[1:]) * stored.itemsize if part else 0
        if own.dtype is stored and own.device.type == "cpu":
            _read(descriptor, start + first, own.view(-1))
        else:
            _convert(descriptor, start + first, own.view(-1), stored)


def _starts(descriptor: int) -> dict[str, int]:
    """The offset of each tensor in a safetensors file."""
    size = int.from_bytes(os.pread(descriptor, 8, 0), "little")
    header = json.loads(os.pread(descriptor, size, 8))
    return {name: 8 + size + said["data_offsets"][0] for name, said in header.items() if name != "__metadata__"}


def _read(descriptor: int, start: int, into: Tensor) -> None:
    """Fill a vector with bytes from a file."""
    rest = into.view(torch.uint8).numpy().data
    while rest:
        count = os.preadv(descriptor, [rest], start)
        if not count:
            raise OSError("the file ends before its last tensor does")
        start, rest = start + count, rest[count:]


def _convert(descriptor: int, start: int, into: Tensor, stored: torch.dtype) -> None:
    """Fill a vector of another type, or on another device, from a file, some elements at a time."""
    numbers, done = torch.empty(min(AT_A_TIME, len(into)), dtype=stored), 0
    while done < len(into):
        some = numbers[: len(into) - done]
        _read(descriptor, start + done * stored.itemsize, some)
        into[done : done + len(some)].copy_(some)
        done += len(some)


@contextmanager
def opened(folder: Path) -> Iterator[Weights]:
    """Open a saved model's weights.

    Raises:
        UnderstudyError: a file is missing, or not in safetensors format.
    """
    from safetensors import SafetensorError, safe_open

    path = folder
    with ExitStack() as stack:
        try:
            files = []
            for path in weight_files(folder):
                descriptor = stack.enter_context(path.open("rb")).fileno()
                files.append((descriptor, stack.enter_context(safe_open(path, framework="pt"))))
            yield Weights(files)
        except (OSError, SafetensorError) as error:
            raise UnderstudyError(
                f"{path}: is no safetensors file ({error}); move its folder away, and run again"
            ) from error


def write_weights(
    folder: Path,
    tensors: Mapping[str, Tensor | Later],
    smallest: int = SMALLEST,
    stages: dist.ProcessGroup | None = None,
    copies: dist.ProcessGroup | None = None,
    kind: torch.dtype | None = None,
) -> None:
    """Write tensors, sharded or not. To be called on every rank.

    Args:
        folder: an existing folder.
        tensors: by their names in the files; the same ones in the same order on the ranks of `copies`.
        smallest: the lowest size limit of a file in bytes.
        stages: the process group of stages, which have other tensors; a tensor of several is written by the first.
        copies: the process group of ranks with the same tensors, or parts of them; default: all.
        kind: the type that floating-point tensors are converted to when they are written; default: unchanged.
    """
    kinds = {
        name: kind if kind and tensor.dtype.is_floating_point else tensor.dtype for name, tensor in tensors.items()
    }
    sizes = {name: tensor.numel() * kinds[name].itemsize for name, tensor in tensors.items()}  # global, for DTensors
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
    """The tensors that each stage writes: bytes by name."""
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
    tensors: Mapping[str, Tensor | Later],
    kinds: Mapping[str, torch.dtype],
    files: Mapping[str, list[str]],
    copies: dist.ProcessGroup | None,
) -> None:
    """Write files with these tensors, as many in parallel as there are ranks."""
    rank, ranks = (dist.get_rank(copies), dist.get_world_size(copies)) if dist.is_initialized() else (0, 1)
    names = list(files)
    for first in range(0, len(names), ranks):
        mine: dict[str, Tensor] = {}
        for place, file in enumerate(names[first : first + ranks]):
            for name in files[file]:
                found = full_tensor(_made(tensors[name]))  # a collective: on every rank
                if place == rank:
                    mine[name] = found.cpu().to(kinds[name]).contiguous()
        if mine:
            _save(mine, folder / names[first + rank])


def _shared_out(sizes: Mapping[str, int], most: int) -> Iterator[list[str]]:
    """Names of each file's tensors, in order; a file has at most `most` bytes, or a single tensor."""
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


def _made(tensor: Tensor | Later) -> Tensor:
    return tensor.make() if isinstance(tensor, Later) else tensor


def _save(tensors: dict[str, Tensor], path: Path) -> None:
    """Save one file; raise the OSError of a failed system call, which safetensors reports only in an error's text."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    path.touch()
    mode = path.stat().st_mode  # safetensors creates files that only their owner can read
    try:
        save_file(tensors, path, metadata={"format": "pt"})
    except SafetensorError as error:
        number = re.search(r"os error (\d+)", str(error))
        raise (OSError(int(number[1]), os.strerror(int(number[1]))) if number else error) from error
    path.chmod(mode)
