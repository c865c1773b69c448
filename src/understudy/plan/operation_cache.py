"""A cache of operations' results on FakeTensors, by their inputs.

FakeTensorMode has a cache, too, for any device and symbolic sizes, and takes ten times as long for a lookup. It
computes the results that are not plain enough for this cache.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._pytree import tree_leaves

Key = tuple[Any, ...]
PLAIN = {int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format}
"""Types of numbers and settings that may be part of a key."""
UNCACHED = (torch.Tag.inplace_view, torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)
"""Tags of operations that are never cached."""
WRITING = {"aten", "fsdp"}
"""Namespaces of operations that may return None because they write into their inputs."""
UNKNOWN: Any = object()
MODE = torch._C._TorchDispatchModeKey.FAKE


@dataclass(frozen=True)
class Like:
    """The properties of a tensor that an operation returned."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    device: torch.device
    inference: bool
    """Whether it is an inference tensor, or a view of one."""
    storage_index: int | None
    """The index of the input tensor with its storage; None if the storage is new."""


Entry = tuple[type, tuple[Like | int | None, ...]]
"""A tensor, or a tuple or list of several: the properties of each, or the index of the input that it is."""

_remembered: dict[Key, Entry | None] = {}
"""None marks results that cannot be cached. No entry depends on a single trace."""


class OperationCache:
    """The results of a trace's operations.

    Args:
        mode: the trace's FakeTensorMode.
    """

    def __init__(self, mode: FakeTensorMode) -> None:
        self._mode = mode
        self._attributes: dict[torch.device, dict[str, Any]] = {}

    def run(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """The result of an operation: cached, or computed."""
        tensors: list[FakeTensor] = []
        if torch._C._get_dispatch_mode(MODE) is not self._mode:
            return func(*args, **kwargs)
        key = _key(func, args, kwargs, tensors)
        if key is None:
            return func(*args, **kwargs)
        entry = _remembered.get(key, UNKNOWN)
        if entry is UNKNOWN:
            result = func(*args, **kwargs)
            unchanged = _key(func, args, kwargs, []) == key
            _remembered[key] = self._entry(func, result, tensors) if unchanged else None
            return result
        if entry is None:
            return func(*args, **kwargs)
        kind, output = entry
        if kind is NoneType:
            return None
        result = [
            self._restore(part, tensors) if isinstance(part, Like) else None if part is None else tensors[part]
            for part in output
        ]
        return result[0] if kind is FakeTensor else kind(result)

    def _entry(self, func: Any, result: Any, tensors: list[FakeTensor]) -> Entry | None:
        kind, several = type(result), type(result) in (tuple, list)
        if any(tag in func.tags for tag in UNCACHED):
            return None
        if result is None and func.namespace in WRITING:
            return kind, ()
        if not several and kind is not FakeTensor:
            return None
        storages = {tensor.untyped_storage()._cdata: number for number, tensor in reversed([*enumerate(tensors)])}
        same = {id(tensor): number for number, tensor in reversed([*enumerate(tensors)])}
        parts: list[Like | int | None] = []
        for part in result if several else (result,):
            if part is None or id(part) in same:
                parts.append(None if part is None else same[id(part)])
                continue
            like = self._like(part, storages, tensors)
            if like is None:
                return None
            parts.append(like)
        new = [part.untyped_storage()._cdata for part in tree_leaves(result) if isinstance(part, Tensor)]
        new = [data for data in new if data not in storages]
        return (kind, tuple(parts)) if len(new) == len(set(new)) else None

    def _like(self, tensor: Any, storages: Mapping[int, int], tensors: list[FakeTensor]) -> Like | None:
        """The properties of a tensor; None if it is not plain, or its storage has another size than they imply."""
        if type(tensor) is not FakeTensor or tensor.fake_mode is not self._mode or tensor.constant is not None:
            return None
        if tensor.layout is not torch.strided or tensor.requires_grad or tensor.dispatch_keys or tensor.is_conj():
            return None
        storage_index = storages.get(tensor.untyped_storage()._cdata)
        shape, stride, offset = tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset())
        if storage_index is not None and len(storages) < len(tensors):
            return None  # inputs share a storage; next time it may view another one
        like = Like(shape, stride, offset, tensor.dtype, tensor.fake_device, tensor.is_inference(), storage_index)
        restored = self._restore(like, tensors)
        has_same_size = restored.untyped_storage().nbytes() == tensor.untyped_storage().nbytes()
        has_same_keys = torch._C._dispatch_key_set(restored) == torch._C._dispatch_key_set(tensor)
        return like if has_same_size and has_same_keys else None

    def _restore(self, like: Like, tensors: list[FakeTensor]) -> Tensor:
        if like.inference == torch.is_inference_mode_enabled():
            return self._shaped(like, tensors)
        with torch._C._InferenceMode(like.inference):
            return self._shaped(like, tensors)

    def _shaped(self, like: Like, tensors: list[FakeTensor]) -> Tensor:
        with torch._C._DisableTorchDispatch():
            if like.storage_index is None:
                meta = torch.empty_strided(like.shape, like.stride, dtype=like.dtype, device="meta")
            else:
                meta = torch.empty_strided((), (), dtype=like.dtype, device="meta")
                meta.set_(tensors[like.storage_index].untyped_storage(), like.offset, like.shape, like.stride)
            return self._without_memory(meta, like.device)

    def _without_memory(self, meta: Tensor, device: torch.device) -> Tensor:
        """Do as FakeTensor's constructor, without its checks, which have the same results each time."""
        if device not in self._attributes:
            self._attributes[device] = dict(FakeTensor(self._mode, meta, device).__dict__)
        fake: Tensor = Tensor._make_subclass(
            FakeTensor, meta, require_grad=False, dispatch_device=True, device_for_backend_keys=device
        )
        torch._C._set_throw_on_mutable_data_ptr(fake)
        fake.__dict__.update(self._attributes[device])
        return fake


def _key(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], tensors: list[FakeTensor]) -> Key | None:
    """The inputs that determine a result; None if sizes, types and settings alone do not."""
    parts = [func, torch.get_default_dtype(), torch.is_inference_mode_enabled()]
    if not _describe(args, parts, tensors):
        return None
    if kwargs:
        parts.extend(kwargs)
        if not _describe(kwargs.values(), parts, tensors):
            return None
    return tuple(parts)


def _describe(values: Iterable[Any], parts: list[Any], tensors: list[FakeTensor]) -> bool:
    for value in values:
        kind = type(value)
        if kind is FakeTensor:
            if value.constant is not None:
                return False
            tensors.append(value)
            shape = value.shape
            parts += (len(shape), shape, value.stride(), value.storage_offset(), value.dtype, value._fake_device)
            parts += (value.requires_grad, value.is_inference())
        elif kind in PLAIN:
            parts += (kind, value)
        elif kind in (list, tuple):
            parts += (kind, len(value))
            if not _describe(value, parts, tensors):
                return False
        else:
            return False
    return True
