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
AGAIN = (torch.Tag.inplace_view, torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)
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
    given: int | None
    """The index of the input tensor with its storage; None if the storage is new."""


Answer = tuple[type, tuple[Like | int | None, ...]]
"""A tensor, or a tuple or list of several: the properties of each, or the index of the input that it is."""

_remembered: dict[Key, Answer | None] = {}
"""None marks results that cannot be cached. No entry depends on a single trace."""


class Answers:
    """The results of a trace's operations.

    Args:
        mode: the trace's FakeTensorMode.
    """

    def __init__(self, mode: FakeTensorMode) -> None:
        self._mode = mode
        self._said: dict[torch.device, dict[str, Any]] = {}

    def of(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """The result of an operation."""
        tensors: list[FakeTensor] = []
        if torch._C._get_dispatch_mode(MODE) is not self._mode:
            return func(*args, **kwargs)
        key = _key(func, args, kwargs, tensors)
        if key is None:
            return func(*args, **kwargs)
        answer = _remembered.get(key, UNKNOWN)
        if answer is UNKNOWN:
            made = func(*args, **kwargs)
            unchanged = _key(func, args, kwargs, []) == key
            _remembered[key] = self._answer(func, made, tensors) if unchanged else None
            return made
        if answer is None:
            return func(*args, **kwargs)
        kind, each = answer
        if kind is NoneType:
            return None
        made = [
            self._made(one, tensors) if isinstance(one, Like) else None if one is None else tensors[one] for one in each
        ]
        return made[0] if kind is FakeTensor else kind(made)

    def _answer(self, func: Any, made: Any, tensors: list[FakeTensor]) -> Answer | None:
        kind, several = type(made), type(made) in (tuple, list)
        if any(tag in func.tags for tag in AGAIN):
            return None
        if made is None and func.namespace in WRITING:
            return kind, ()
        if not several and kind is not FakeTensor:
            return None
        storages = {tensor.untyped_storage()._cdata: number for number, tensor in reversed([*enumerate(tensors)])}
        same = {id(tensor): number for number, tensor in reversed([*enumerate(tensors)])}
        found: list[Like | int | None] = []
        for one in made if several else (made,):
            if one is None or id(one) in same:
                found.append(None if one is None else same[id(one)])
                continue
            like = self._like(one, storages, tensors)
            if like is None:
                return None
            found.append(like)
        new = [one.untyped_storage()._cdata for one in tree_leaves(made) if isinstance(one, Tensor)]
        new = [data for data in new if data not in storages]
        return (kind, tuple(found)) if len(new) == len(set(new)) else None

    def _like(self, made: Any, storages: Mapping[int, int], tensors: list[FakeTensor]) -> Like | None:
        """The properties of a tensor; None if it is not plain, or its storage has another size than they imply."""
        if type(made) is not FakeTensor or made.fake_mode is not self._mode or made.constant is not None:
            return None
        if made.layout is not torch.strided or made.requires_grad or made.dispatch_keys or made.is_conj():
            return None
        given = storages.get(made.untyped_storage()._cdata)
        shape, stride, offset = tuple(made.shape), made.stride(), int(made.storage_offset())
        if given is not None and len(storages) < len(tensors):
            return None  # inputs share a storage; next time it may view another one
        like = Like(shape, stride, offset, made.dtype, made.fake_device, made.is_inference(), given)
        again = self._made(like, tensors)
        alike = again.untyped_storage().nbytes() == made.untyped_storage().nbytes()
        return like if alike and torch._C._dispatch_key_set(again) == torch._C._dispatch_key_set(made) else None

    def _made(self, like: Like, tensors: list[FakeTensor]) -> Tensor:
        if like.inference == torch.is_inference_mode_enabled():
            return self._shaped(like, tensors)
        with torch._C._InferenceMode(like.inference):
            return self._shaped(like, tensors)

    def _shaped(self, like: Like, tensors: list[FakeTensor]) -> Tensor:
        with torch._C._DisableTorchDispatch():
            if like.given is None:
                meta = torch.empty_strided(like.shape, like.stride, dtype=like.dtype, device="meta")
            else:
                meta = torch.empty_strided((), (), dtype=like.dtype, device="meta")
                meta.set_(tensors[like.given].untyped_storage(), like.offset, like.shape, like.stride)
            return self._without_memory(meta, like.device)

    def _without_memory(self, meta: Tensor, device: torch.device) -> Tensor:
        """Do as FakeTensor's constructor, without its checks, which have the same results each time."""
        if device not in self._said:
            self._said[device] = dict(FakeTensor(self._mode, meta, device).__dict__)
        made: Tensor = Tensor._make_subclass(
            FakeTensor, meta, require_grad=False, dispatch_device=True, device_for_backend_keys=device
        )
        torch._C._set_throw_on_mutable_data_ptr(made)
        made.__dict__.update(self._said[device])
        return made


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


def _describe(given: Iterable[Any], parts: list[Any], tensors: list[FakeTensor]) -> bool:
    for one in given:
        kind = type(one)
        if kind is FakeTensor:
            if one.constant is not None:
                return False
            tensors.append(one)
            shape = one.shape
            parts += (len(shape), shape, one.stride(), one.storage_offset(), one.dtype, one._fake_device)
            parts += (one.requires_grad, one.is_inference())
        elif kind in PLAIN:
            parts += (kind, one)
        elif kind in (list, tuple):
            parts += (kind, len(one))
            if not _describe(one, parts, tensors):
                return False
        else:
            return False
    return True
