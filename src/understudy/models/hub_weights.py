"""Memory-mapped weights of a pretrained model for transformers, which are never all in memory.

transformers maps names in files to names in the network, merges tensors, and reports missing ones, but would convert
all tensors to fp32 in memory. Here it gets mapped tensors in their stored types, and they are converted when the model
is written, one file's tensors at a time. Tensors that transformers merges (experts, for example) go to an unlinked
file.
"""

import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from understudy.models.facts import WEIGHTS
from understudy.models.hub_index import named_files
from understudy.models.weight_files import INDEX
from understudy.models.weights import TYPES

PICKLED = "pytorch_model.bin"
PICKLED_INDEX = f"{PICKLED}.index.json"
FLOATING = {"F64", "F32", "F16", "BF16"}
KINDS = {str(kind): name for kind, name in TYPES.items()}
SMALL = 2**20
"""Tensors of fewer bytes stay in memory."""


class HubWeights:
    """The tensors of a folder in the hub's format.

    Args:
        folder: the model's folder.
        pickle: whether pickle files may be opened if there are no safetensors files.

    Raises:
        OSError: there are no weight files, or one cannot be read.
        ValueError: the index is invalid, or a weight is not floating-point with 16 bits or more.
        SafetensorError: a file is not in safetensors format.
    """

    def __init__(self, folder: Path, pickle: bool) -> None:
        self.tensors: dict[str, Any] = {}
        """By their names in the files, in the form that transformers takes."""
        self._mapped: set[int] = set()
        for path in _files(folder, pickle):
            stored = _opened(path)
            _check_types(stored, path)
            self.tensors |= {name: _Stored(tensor, self._mapped) for name, tensor in stored.items()}

    @contextmanager
    def merged_on_disk(self, folder: Path) -> Iterator[None]:
        """Move large parameters that modules register within the context to disk, unless they are mapped already.

        Args:
            folder: a folder on a disk with enough space; no files remain in it.
        """

        def move(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
            del module, name
            if parameter is None or parameter.is_meta or parameter.nbytes < SMALL:
                return
            if parameter.data_ptr() not in self._mapped:
                parameter.data = _on_disk(parameter.data, folder)

        hook = register_module_parameter_registration_hook(move)
        try:
            yield
        finally:
            hook.remove()


class _Stored:
    """A tensor in a file, with the interface that transformers uses: index all of it, then .to(device, dtype)."""

    def __init__(self, tensor: Any, mapped: set[int]) -> None:
        self._tensor, self._mapped = tensor, mapped

    def __getitem__(self, index: object) -> "_Stored":
        return self

    def to(self, device: object = None, dtype: torch.dtype | None = None) -> Tensor:
        """The tensor, mapped; floating-point tensors keep their type."""
        del device
        tensor: Tensor = self._tensor[...]
        self._mapped.add(tensor.data_ptr())
        return tensor if tensor.is_floating_point() else tensor.to(dtype)


def _on_disk(tensor: Tensor, folder: Path) -> Tensor:
    """A copy in an unlinked file, which is freed with the copy."""
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        copy = torch.from_file(file.name, shared=True, size=tensor.numel(), dtype=tensor.dtype).view(tensor.shape)
    return copy.copy_(tensor)


def _files(folder: Path, pickle: bool) -> list[Path]:
    names = [(WEIGHTS, INDEX), *([(PICKLED, PICKLED_INDEX)] if pickle else [])]
    for name, index in names:
        if (folder / name).exists():
            return [folder / name]
        if (folder / index).exists():
            return [folder / name for name in named_files(folder / index)]
    raise OSError(f"{folder} has no file named {' or '.join(name for name, _ in names)}, and no index of several")


def _check_types(stored: Mapping[str, Any], path: Path) -> None:
    """Refuse quantised weights, which have no meaning without separate scales."""
    for name, tensor in stored.items():
        dtype = KINDS.get(str(tensor.dtype)) if isinstance(tensor, Tensor) else tensor.get_dtype()
        if dtype not in FLOATING and name.endswith(("weight", "bias")):
            raise ValueError(
                f"{path.name}: {name} is quantised or not floating-point; take the model that it was made from"
            )


def _opened(path: Path) -> Mapping[str, Any]:
    """A file's tensors, mapped."""
    if path.suffix == ".safetensors":
        from safetensors import safe_open

        file: Any = safe_open(path, framework="pt")
        return {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
    # Files from before torch 1.6 are not zip archives, and cannot be mapped.
    pickled: Mapping[str, Any] = torch.load(path, "cpu", mmap=zipfile.is_zipfile(path), weights_only=True)
    return pickled
