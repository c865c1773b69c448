"""A model's weights on disk, in the hub's format: one file, or several with an index. No tensor spans two files.

Ranks read only their shards of tensors. They write full tensors, each rank to separate files in parallel. Meanwhile a
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

MIN_LIMIT, MAX_FILES = 256 * 2**20, 32
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

Header = tuple[list[int], str]
"""Shape and type."""


def header(tensor: Tensor) -> Header:
    """A tensor's shape and type, in the format of a file's header."""
    return list(tensor.shape), TYPES[tensor.dtype]


@dataclass(frozen=True)
class LazyTensor:
    """A tensor that is computed when it is written, so that not all are in memory at once."""

    shape: torch.Size
    dtype: torch.dtype
    compute: Callable[[], Tensor]
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
        self._offsets: dict[str, tuple[int, int]] = {}
        for descriptor, file in files:
            self._files |= dict.fromkeys(file.keys(), file)
            self._offsets |= {name: (descriptor, start) for name, start in _starts(descriptor).items()}
        slices = {name: file.get_slice(name) for name, file in self._files.items()}
        self.headers: dict[str, Header] = {name: (view.get_shape(), view.get_dtype()) for name, view in slices.items()}
        """Shape and type of each tensor, from the files' headers."""

    def rows(self, name: str, first: int, last: int) -> Tensor:
        """Rows first to last - 1 of a tensor, in the file's type."""
        rows: Tensor = self._files[name].get_slice(name)[first:last]
        return rows

    def read(self, name: str, target: Tensor) -> None:
        """Read this rank's part of a tensor, whose shape is the file's, and no other bytes.

        A contiguous part is read directly into the tensor's memory, in one pass. A part of each row is copied from a
        memory mapping of the file.
        """
        slices, local = local_slices(target), local_tensor(target).detach()
        in_rows = any(rows != slice(0, size) for rows, size in zip(slices[1:], target.shape[1:], strict=True))
        if in_rows or not local.is_contiguous():
            local.copy_(self._files[name].get_slice(name)[slices])
            return
        descriptor, start = self._offsets[name]
        stored = BY_NAME[self.headers[name][1]]
        first = slices[0].start * math.prod(target.shape[1:]) * stored.itemsize if slices else 0
        if local.dtype is stored and local.device.type == "cpu":
            _read(descriptor, start + first, local.view(-1))
        else:
            _convert(descriptor, start + first, local.view(-1), stored)


def _starts(descriptor: int) -> dict[str, int]:
    """The offset of each tensor in a safetensors file."""
    size = int.from_bytes(os.pread(descriptor, 8, 0), "little")
    header = json.loads(os.pread(descriptor, size, 8))
    return {name: 8 + size + entry["data_offsets"][0] for name, entry in header.items() if name != "__metadata__"}


def _read(descriptor: int, start: int, target: Tensor) -> None:
    """Fill a vector with bytes from a file."""
    buffer = target.view(torch.uint8).numpy().data
    while buffer:
        count = os.preadv(descriptor, [buffer], start)
        if not count:
            raise OSError("the file ends before its last tensor does")
        start, buffer = start + count, buffer[count:]


def _convert(descriptor: int, start: int, target: Tensor, stored: torch.dtype) -> None:
    """Fill a vector of another type, or on another device, from a file, some elements at a time."""
    buffer, done = torch.empty(min(AT_A_TIME, len(target)), dtype=stored), 0
    while done < len(target):
        chunk = buffer[: len(target) - done]
        _read(descriptor, start + done * stored.itemsize, chunk)
        target[done : done + len(chunk)].copy_(chunk)
        done += len(chunk)


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
                f"{path}: is not a safetensors file ({error}); move its folder away, and run again"
            ) from error


def write_weights(
    folder: Path,
    tensors: Mapping[str, Tensor | LazyTensor],
    min_limit: int = MIN_LIMIT,
    stages: dist.ProcessGroup | None = None,
    copies: dist.ProcessGroup | None = None,
    dtype: torch.dtype | None = None,
) -> None:
    """Write tensors, sharded or not. To be called on every rank.

    Args:
        folder: an existing folder.
        tensors: by their names in the files; the same ones in the same order on the ranks of `copies`.
        min_limit: the lowest size limit of a file in bytes.
        stages: the process group of stages, which have other tensors; a tensor of several is written by the first.
        copies: the process group of ranks with the same tensors, or parts of them; default: all.
        dtype: the type that floating-point tensors are converted to when they are written; default: unchanged.
    """
    dtypes = {
        name: dtype if dtype and tensor.dtype.is_floating_point else tensor.dtype for name, tensor in tensors.items()
    }
    sizes = {name: tensor.numel() * dtypes[name].itemsize for name, tensor in tensors.items()}  # global, for DTensors
    stage_sizes = _gathered(sizes, stages)
    total = sum(sum(sizes.values()) for sizes in stage_sizes)
    files = [list(_files_of(sizes, max(min_limit, -(-total // MAX_FILES)))) for sizes in stage_sizes]
    count = sum(map(len, files))
    names = [f"model-{number:05}-of-{count:05}.safetensors" for number in range(1, count + 1)]
    names = names if count > 1 else [WEIGHTS]
    start = sum(map(len, files[: stages.rank()])) if stages else 0
    stage_files = files[stages.rank() if stages else 0]
    _write_files(folder, tensors, dtypes, dict(zip(names[start:], stage_files, strict=False)), copies)
    if count > 1 and (not dist.is_initialized() or dist.get_rank() == 0):
        all_files = [file for stage in files for file in stage]
        weight_map = {tensor: name for name, file in zip(names, all_files, strict=True) for tensor in file}
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        (folder / INDEX).write_text(json.dumps(index, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _gathered(sizes: dict[str, int], stages: dist.ProcessGroup | None) -> list[dict[str, int]]:
    """The tensors that each stage writes: bytes by name."""
    if stages is None or stages.size() == 1:
        return [sizes]
    gathered: list[Any] = [None] * stages.size()
    dist.all_gather_object(gathered, sizes, group=stages)
    assigned: set[str] = set()
    for stage in gathered:
        for name in assigned & stage.keys():
            del stage[name]
        assigned |= stage.keys()
    return gathered


def _write_files(
    folder: Path,
    tensors: Mapping[str, Tensor | LazyTensor],
    dtypes: Mapping[str, torch.dtype],
    files: Mapping[str, list[str]],
    copies: dist.ProcessGroup | None,
) -> None:
    """Write files with these tensors, as many in parallel as there are ranks."""
    rank, ranks = (dist.get_rank(copies), dist.get_world_size(copies)) if dist.is_initialized() else (0, 1)
    names = list(files)
    for first in range(0, len(names), ranks):
        file_tensors: dict[str, Tensor] = {}
        for position, file in enumerate(names[first : first + ranks]):
            for name in files[file]:
                tensor = full_tensor(_computed(tensors[name]))  # a collective: on every rank
                if position == rank:
                    file_tensors[name] = tensor.cpu().to(dtypes[name]).contiguous()
        if file_tensors:
            _save(file_tensors, folder / names[first + rank])


def _files_of(sizes: Mapping[str, int], limit: int) -> Iterator[list[str]]:
    """Names of each file's tensors, in order; a file has at most `limit` bytes, or a single tensor."""
    names: list[str] = []
    total = 0
    for name, size in sizes.items():
        if names and total + size > limit:
            yield names
            names, total = [], 0
        names.append(name)
        total += size
    if names:
        yield names


def _computed(tensor: Tensor | LazyTensor) -> Tensor:
    return tensor.compute() if isinstance(tensor, LazyTensor) else tensor


def _save(tensors: dict[str, Tensor], path: Path) -> None:
    """Save one file; raise the OSError of a failed system call, which safetensors reports only in an error's text."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    path.touch()
    mode = path.stat().st_mode  # safetensors creates files that only their owner can read
    try:
        save_file(tensors, path, metadata={"format": "pt"})
    except SafetensorError as error:
        match = re.search(r"os error (\d+)", str(error))
        raise (OSError(int(match[1]), os.strerror(int(match[1]))) if match else error) from error
    path.chmod(mode)
