"""Random initial weights, derived from seed and parameter name: the same bits however a model is sharded.

The architecture defines the distributions, in transformers' initialize_weights, which runs on a rank's shards. Each
random draw draws the whole parameter, from a separate generator, and keeps the rank's shard. So a rank has one whole
parameter in memory at a time, never the whole model.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from understudy.models.parts import local_slices, local_tensor
from understudy.models.rounded import placeholder_weights

INITIALIZED = "_is_hf_initialized"
"""transformers' mark of modules and tensors that are already initialised."""


def draw_weights(net: nn.Module, seed: int) -> None:
    """Initialise the weights and buffers of a transformers network, in place.

    Args:
        net: the network; its tensors have memory, and may be sharded.
        seed: the run's seed.
    """
    for item in (*net.modules(), *net.parameters(), *net.buffers()):
        if hasattr(item, INITIALIZED):
            delattr(item, INITIALIZED)
    torch.manual_seed(seed)  # for draws that are not into parameters
    with _Drawing({_address(tensor): name for name, tensor in net.named_parameters()}, seed):
        net.initialize_weights()  # type: ignore[operator]


def compute_buffers(net: nn.Module) -> None:
    """Compute the non-persistent buffers of a transformers network whose weights are loaded."""
    for module in net.modules():
        if hasattr(module, INITIALIZED):
            delattr(module, INITIALIZED)
    saved, weight = net.state_dict(keep_vars=True).values(), torch.empty(0)
    for tensor in (*net.parameters(), *saved, weight):
        setattr(tensor, INITIALIZED, True)
    with placeholder_weights(net, weight):
        net.initialize_weights()  # type: ignore[operator]


class _Drawing(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Derive random draws into parameters from seed and name, within the context."""

    def __init__(self, names: Mapping[int, str], seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._names, self._seed = names, seed
        self._draws: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operation; replace random draws into parameters, and copies of whole tensors into sharded ones."""
        del types
        target = args[0] if args else None
        if isinstance(target, Tensor):
            name = self._names.get(_address(target))
            if name is not None and _draws_in_place(func):
                return self._draw(name, func, target, args[1:], kwargs or {})
            if (
                isinstance(target, DTensor)
                and func is torch.ops.aten.copy_.default
                and not isinstance(args[1], DTensor)
            ):
                local_tensor(target).copy_(args[1][local_slices(target)])
                return target
        return func(*args, **(kwargs or {}))

    def _draw(self, name: str, func: Any, target: Tensor, args: tuple[Any, ...], options: dict[str, Any]) -> Tensor:
        generator = torch.Generator().manual_seed(_seed(self._seed, name, self._draws[name]))
        self._draws[name] += 1
        full = torch.empty(target.shape, dtype=target.dtype)  # on the CPU: a GPU's generator draws other numbers
        func(full, *args, **{**options, "generator": generator})
        local_tensor(target).copy_(full[local_slices(target)])
        return target


def _draws_in_place(func: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in func.tags and func._schema.name.endswith("_")


def _address(tensor: Tensor) -> int:
    """The storage address, which a tensor shares with its detach() and .data."""
    return local_tensor(tensor).untyped_storage().data_ptr()


def _seed(seed: int, name: str, draw: int) -> int:
    digest = hashlib.blake2b(f"{seed} {name} {draw}".encode(), digest_size=7).digest()
    return int.from_bytes(digest)
