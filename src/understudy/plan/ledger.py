"""A ledger of memory: what every operation allocates and frees, of which kind it is, and when it is most.

It sees operations as torch dispatches them, on tensors with memory or without.
"""

import weakref
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any, Literal
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from understudy.models.parts import kept

Kind = Literal[
    "parameters", "gradients", "optimizer", "teacher", "activations", "logits", "communication", "temporary", "data"
]
COLLECTIVES = {"c10d", "_c10d_functional", "fsdp"}


@dataclass(frozen=True)
class Peak:
    """The most memory that was held."""

    bytes: int
    phase: str
    kinds: dict[Kind, int]


@dataclass(frozen=True)
class Count:
    """What was computed and sent up to a moment."""

    flops: int
    traffic: Counter[tuple[str, tuple[int, ...]]]


class Ledger(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """What watching() has seen. FakeTensorMode is entered before it, where tensors have no memory.

    Args:
        vocabulary: the last dimension of logits.
        grain: bytes that allocations are rounded up to.
    """

    def __init__(self, vocabulary: int, grain: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.phase = "build"
        self.traffic: Counter[tuple[str, tuple[int, ...]]] = Counter()
        """Bytes that this rank hands to collectives, by operation and ranks."""
        self.flops = 0
        """Floating-point operations of products of matrices, and of attention."""
        self._vocabulary, self._grain = vocabulary, grain
        self._changes: list[tuple[int, int, str]] = []
        self._sizes: dict[int, int] = {}
        self._kinds: dict[int, Kind] = {}
        self._serial: dict[int, int] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Within it, what happens is entered. Storages change their size behind the dispatcher's back, too: fully_shard
        frees what it has gathered. What DTensor does with whole shapes, once, to find those of parts, is not of the
        training.
        """
        plain, find_shapes = torch.UntypedStorage.resize_, ShardingPropagator._propagate_tensor_meta_non_cached

        def resize(storage: torch.UntypedStorage, size: int) -> Any:
            answer = plain(storage, size)
            if (serial := self._serial.get(storage._cdata)) is not None:
                self._kinds[serial] = "communication"
                self._change(serial, self._rounded(size))
            return answer

        @wraps(find_shapes)
        def unseen(*args: Any, **named: Any) -> Any:
            with _disable_current_modes():
                return find_shapes(*args, **named)

        with (
            patch.object(torch.UntypedStorage, "resize_", resize),
            patch.object(ShardingPropagator, "_propagate_tensor_meta_non_cached", unseen),
            self,
        ):
            yield

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """One operation; those on DTensors come again, on what this rank has of them."""
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented
        if func._overloadpacket not in flop_registry and func is not torch.ops.prim.device.default:
            with self:  # as autograd would take it apart, where there is none
                made = func.decompose(*args, **(kwargs or {}))
            if made is not NotImplemented:
                return made
        if func.namespace == "c10d":
            self._count_traffic(func, args)
        made = func(*args, **(kwargs or {}))
        if (count := flop_registry.get(func._overloadpacket)) is not None:
            self.flops += count(*args, **(kwargs or {}), out_val=made)
        for tensor in tree_leaves(made):
            if isinstance(tensor, Tensor):
                self._enter(tensor, func)
        return made

    def mark(self, kind: Kind, tensors: Iterable[Tensor]) -> None:
        """Say of which kind tensors are, whatever they were taken for."""
        for tensor in tensors:
            if (serial := self._serial.get(kept(tensor).untyped_storage()._cdata)) is not None:
                self._kinds[serial] = kind

    def forget(self) -> None:
        """From here on it counts; what is held stays so."""
        self._changes = [(serial, size, self.phase) for serial, size in self._sizes.items()]
        self.traffic.clear()
        self.flops = 0

    @property
    def count(self) -> Count:
        """Up to now."""
        return Count(self.flops, self.traffic.copy())

    def repeat(self, since: Count, times: int) -> None:
        """Enter what was computed and sent since a moment so many times more."""
        self.flops += times * (self.flops - since.flops)
        for which, size in self.traffic.items():
            self.traffic[which] = size + times * (size - since.traffic[which])

    def peak(self) -> Peak:
        """The most that was held since forget()."""
        held: dict[int, int] = {}
        total = most = at = 0
        for number, (serial, size, _) in enumerate(self._changes):
            total += size - held.get(serial, 0)
            held[serial] = size
            if total > most:
                most, at = total, number
        held.clear()
        held |= {serial: size for serial, size, _ in self._changes[: at + 1]}
        kinds: Counter[Kind] = Counter()
        for serial, size in held.items():
            if size:
                kinds[self._kinds[serial]] += size
        return Peak(most, self._changes[at][2] if self._changes else self.phase, dict(kinds.most_common()))

    def _enter(self, tensor: Tensor, func: Any) -> None:
        storage = tensor.untyped_storage()
        if storage._cdata in self._serial:
            return
        serial = len(self._kinds)
        self._serial[storage._cdata] = serial
        self._kinds[serial] = self._kind(tensor, func)
        self._change(serial, self._rounded(storage.nbytes()))
        weakref.finalize(storage, self._free, storage._cdata, serial)

    def _kind(self, tensor: Tensor, func: Any) -> Kind:
        if func.namespace in COLLECTIVES:
            return "communication"
        if tensor.ndim and tensor.shape[-1] == self._vocabulary and tensor.is_floating_point():
            return "logits"
        in_backward = torch._C._current_graph_task_id() != -1
        return "temporary" if in_backward or self.phase != "forward and backward" else "activations"

    def _free(self, data: int, serial: int) -> None:
        self._serial.pop(data, None)
        self._change(serial, 0)

    def _change(self, serial: int, size: int) -> None:
        if size:
            self._sizes[serial] = size
        else:
            self._sizes.pop(serial, None)
        self._changes.append((serial, size, self.phase))

    def _rounded(self, size: int) -> int:
        return -(-size // self._grain) * self._grain

    def _count_traffic(self, func: Any, args: tuple[Any, ...]) -> None:
        group = next((arg for arg in args if isinstance(arg, torch.ScriptObject)), None)
        ranks = tuple(dist.get_process_group_ranks(dist.ProcessGroup.unbox(group))) if group is not None else ()
        size = max((tensor.nbytes for tensor in tree_leaves(args) if isinstance(tensor, Tensor)), default=0)
        self.traffic[func._schema.name.removeprefix("c10d::"), ranks] += size
