"""A ledger of memory: the allocations and frees of every operation, their kind, and the peak.

It sees operations as torch dispatches them, on tensors with or without memory.
"""

import weakref
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial, wraps
from typing import Any, Literal
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import _resolve_process_group
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from understudy.models.parts import local_tensor
from understudy.plan.operation_cache import OperationCache

Kind = Literal[
    "parameters", "gradients", "optimizer", "teacher", "activations", "logits", "communication", "temporary", "data"
]
COLLECTIVES = {"c10d", "_c10d_functional", "fsdp"}
SENDING = {"c10d", "_c10d_functional"}
"""Namespaces of collectives that send: of fully_shard, pipelines and context parallel, and of tensor parallel."""
WAIT = torch.ops._c10d_functional.wait_tensor.default
DEVICE = torch.ops.prim.device.default
Block = tuple[int, int]
"""One of a model's repeated blocks: its list, and its index there."""


@dataclass(frozen=True)
class Peak:
    """The peak of memory."""

    bytes: int
    phase: str
    kinds: dict[Kind, int]
    within: Block | None = None
    """The block that was running at the peak."""
    blocks: Mapping[Block, Counter[Kind]] = field(default_factory=dict)
    """The bytes that belong to each block, by kind."""


@dataclass(frozen=True)
class Count:
    """Computation and traffic up to a moment."""

    flops: int
    traffic: Counter[tuple[str, tuple[int, ...]]]


@dataclass
class Work:
    """A block's computation and traffic."""

    flops: int = 0
    traffic: Counter[tuple[str, tuple[int, ...]]] = field(default_factory=Counter)


class Ledger(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A record of the operations in watching(). If tensors have no memory, FakeTensorMode is entered before it.

    Args:
        vocabulary: the last dimension of logits.
        grain: bytes that allocations are rounded up to.
    """

    def __init__(self, vocabulary: int, grain: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.phase = "build"
        self.block: Block | None = None
        """The block that is running."""
        self.block_of: dict[nn.Module, Block] = {}
        """Blocks by their module."""
        self.work: defaultdict[Block | None, Work] = defaultdict(Work)
        self.traffic: Counter[tuple[str, tuple[int, ...]]] = Counter()
        """Bytes that this rank hands to collectives, by operation and ranks."""
        self.flops = 0
        """Floating-point operations of matrix products and attention."""
        self._vocabulary, self._grain = vocabulary, grain
        self._changes: list[tuple[int, int, str, Block | None]] = []
        self._sizes: dict[int, int] = {}
        self._kinds: dict[int, Kind] = {}
        self._serial: dict[int, int] = {}
        self._blocks: dict[int, Block | None] = {}
        self._alive: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self._cache: OperationCache | None = None

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here, and keeping dynamo out takes as long as a small operation."""
        return False

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Record all operations within the context.

        Storages also change size without the dispatcher: fully_shard frees all-gathered parameters. DTensor's
        operations on whole shapes, to find the shapes of parts, are not recorded: they are not part of the training.
        Stages send gradients after the backward passes of all blocks; each belongs to its own block.
        """
        mode = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE)
        self._cache = OperationCache(mode) if mode else None
        resize_storage, find_shapes = torch.UntypedStorage.resize_, ShardingPropagator._propagate_tensor_meta_non_cached
        send_gradients = FSDPParamGroup.post_backward

        def resize(storage: torch.UntypedStorage, size: int) -> Any:
            result = resize_storage(storage, size)
            if (serial := self._serial.get(storage._cdata)) is not None:
                self._kinds[serial] = "communication"
                self._change(serial, self._rounded(size))
            return result

        @wraps(find_shapes)
        def find_unrecorded(*args: Any, **kwargs: Any) -> Any:
            with _disable_current_modes():
                return find_shapes(*args, **kwargs)

        @wraps(send_gradients)
        def in_block(group: FSDPParamGroup, *args: Any, **kwargs: Any) -> Any:
            before, self.block = self.block, self.block_of.get(group.modules[0])
            try:
                return send_gradients(group, *args, **kwargs)
            finally:
                self.block = before

        with (
            patch.object(FSDPParamGroup, "post_backward", in_block),
            patch.object(torch.UntypedStorage, "resize_", resize),
            patch.object(ShardingPropagator, "_propagate_tensor_meta_non_cached", find_unrecorded),
            self,
        ):
            yield

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Record one operation; operations on DTensors return as operations on local tensors."""
        if func is DEVICE and isinstance(args[0], FakeTensor) and not args[0].fake_mode.in_kernel_invocation:
            return args[0].fake_device  # queried so often that dispatching it takes a tenth of a trace
        for kind in types:
            if issubclass(kind, DTensor):
                return NotImplemented
        return self._record(func, args, kwargs or {})

    def _record(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run and record an operation, and return its result."""
        if func is WAIT and isinstance(args[0], FakeTensor):
            return args[0]  # as with real tensors; for FakeTensors, torch 2.15 returns another tensor
        if func.namespace == "profiler":  # it has no tensors, but FakeTensorMode assumes that it may
            with torch._C._DisableTorchDispatch():
                return func(*args, **kwargs)
        if _is_decomposed(func):
            with self:  # decompose it as autograd would, where autograd is off
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        result = self._cache.run(func, args, kwargs) if self._cache else func(*args, **kwargs)
        if func.namespace in SENDING and func is not WAIT:
            self._count_traffic(func, args, result)
        if (count := flop_registry.get(func._overloadpacket)) is not None:
            done = count(*args, **kwargs, out_val=result)
            self.flops += done
            self.work[self.block].flops += done
        for tensor in (result,) if isinstance(result, Tensor) else tree_leaves(result):
            if isinstance(tensor, Tensor):
                self._enter(tensor, func)
        return result

    def mark(self, kind: Kind, tensors: Iterable[Tensor]) -> None:
        """Set the kind of tensors, regardless of the recorded kind."""
        for tensor in tensors:
            if (serial := self._serial.get(local_tensor(tensor).untyped_storage()._cdata)) is not None:
                self._kinds[serial] = kind

    def assign(self, block: Block | None, tensors: Iterable[Tensor]) -> None:
        """Assign tensors to a block, regardless of the block that created them."""
        for tensor in tensors:
            if (serial := self._serial.get(local_tensor(tensor).untyped_storage()._cdata)) is not None:
                self._blocks[serial] = block

    def forget(self) -> None:
        """Start counting anew; live tensors stay recorded."""
        self._changes = [(serial, size, self.phase, self.block) for serial, size in self._sizes.items()]
        self.work.clear()
        self.traffic.clear()
        self.flops = 0

    @property
    def count(self) -> Count:
        """Computation and traffic up to now."""
        return Count(self.flops, self.traffic.copy())

    def repeat(self, since: Count, times: int) -> None:
        """Count the computation and traffic since a moment so many times more."""
        self.flops += times * (self.flops - since.flops)
        for kind, size in self.traffic.items():
            self.traffic[kind] = size + times * (size - since.traffic[kind])

    def peak(self) -> Peak:
        """The peak of memory since forget()."""
        sizes: dict[int, int] = {}
        total = most = position = 0
        for number, (serial, size, _, _) in enumerate(self._changes):
            total += size - sizes.get(serial, 0)
            sizes[serial] = size
            if total > most:
                most, position = total, number
        sizes.clear()
        sizes |= {serial: size for serial, size, _, _ in self._changes[: position + 1]}
        kinds: Counter[Kind] = Counter()
        blocks: defaultdict[Block, Counter[Kind]] = defaultdict(Counter)
        for serial, size in sizes.items():
            if size:
                kinds[self._kinds[serial]] += size
                if block := self._blocks[serial]:
                    blocks[block][self._kinds[serial]] += size
        phase, within = self._changes[position][2:] if self._changes else (self.phase, self.block)
        return Peak(most, phase, dict(kinds.most_common()), within, dict(blocks))

    def _enter(self, tensor: Tensor, func: Any) -> None:
        storage = tensor.untyped_storage()
        if storage._cdata in self._serial or tensor.is_meta:
            return
        serial = len(self._kinds)
        self._serial[storage._cdata] = serial
        self._kinds[serial] = self._kind(tensor, func)
        self._blocks[serial] = self.block
        self._change(serial, self._rounded(storage.nbytes()))
        self._alive[serial] = weakref.ref(storage, partial(self._free, storage._cdata, serial))

    def _kind(self, tensor: Tensor, func: Any) -> Kind:
        if func.namespace in COLLECTIVES:
            return "communication"
        if tensor.ndim and tensor.shape[-1] == self._vocabulary and tensor.is_floating_point():
            return "logits"
        in_backward = torch._C._current_graph_task_id() != -1
        return "temporary" if in_backward or self.phase != "forward and backward" else "activations"

    def _free(self, data: int, serial: int, _: object) -> None:
        self._alive.pop(serial)
        self._serial.pop(data, None)
        self._change(serial, 0)

    def _change(self, serial: int, size: int) -> None:
        if size:
            self._sizes[serial] = size
        else:
            self._sizes.pop(serial, None)
        self._changes.append((serial, size, self.phase, self.block))

    def _rounded(self, size: int) -> int:
        return -(-size // self._grain) * self._grain

    def _count_traffic(self, func: Any, args: tuple[Any, ...], result: Any) -> None:
        """Count a collective's input or output, whichever is larger: a rank's input to an all-gather is only a part."""
        tensors = [tensor for tensor in tree_leaves((args, result)) if isinstance(tensor, Tensor)]
        collective = func._schema.name.rpartition("::")[2], _ranks(args)
        size = max((tensor.nbytes for tensor in tensors), default=0)
        self.traffic[collective] += size
        self.work[self.block].traffic[collective] += size


def _ranks(args: tuple[Any, ...]) -> tuple[int, ...]:
    """The ranks of a collective's group, which is an argument, or named by the last one."""
    group = next((arg for arg in args if isinstance(arg, torch.ScriptObject)), None)
    if group is not None:
        return tuple(dist.get_process_group_ranks(dist.ProcessGroup.unbox(group)))
    if not isinstance(args[-1], str):
        return ()
    return tuple(dist.get_process_group_ranks(_resolve_process_group(dist.GroupName(args[-1]))))


@cache
def _is_decomposed(func: Any) -> bool:
    """Whether autograd decomposes an operation into others."""
    return func._overloadpacket not in flop_registry and func is not DEVICE and func._can_decompose()
