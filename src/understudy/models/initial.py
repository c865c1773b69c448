"""Random initial weights: each parameter's from the seed and its name, the same bits however a model is spread.

How a weight is distributed is the architecture's to say, in transformers' initialize_weights. It runs on what a rank
keeps; where it draws, the whole parameter is drawn, from a generator of its own, and the rank's part is kept. So a
rank holds one whole parameter at a time, and never the model.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from understudy.models.parts import kept, kept_part
from understudy.models.rounded import seeming_plain

INITIALIZED = "_is_hf_initialized"
"""transformers' mark of modules and tensors that are not to be initialised again."""


def draw_weights(net: nn.Module, seed: int) -> None:
    """Give a network of transformers its initial weights and buffers, in place.

    Args:
        net: its tensors have memory, and may be spread over ranks.
        seed: of the run.
    """
    for thing in (*net.modules(), *net.parameters(), *net.buffers()):
        if hasattr(thing, INITIALIZED):
            delattr(thing, INITIALIZED)
    torch.manual_seed(seed)  # for what is drawn beside the parameters
    with _Drawing({_address(tensor): name for name, tensor in net.named_parameters()}, seed):
        net.initialize_weights()  # type: ignore[operator]


def compute_buffers(net: nn.Module) -> None:
    """Give a network of transformers, whose weights are there, the buffers that no file has."""
    for module in net.modules():
        if hasattr(module, INITIALIZED):
            delattr(module, INITIALIZED)
    saved, weight = net.state_dict(keep_vars=True).values(), torch.empty(0)
    for tensor in (*net.parameters(), *saved, weight):
        setattr(tensor, INITIALIZED, True)
    with seeming_plain(net, weight):
        net.initialize_weights()  # type: ignore[operator]


class _Drawing(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within it, what is drawn into a parameter follows from seed and name."""

    def __init__(self, names: Mapping[int, str], seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._names, self._seed = names, seed
        self._draws: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """One operation, as torch calls it."""
        del types
        into = args[0] if args else None
        if isinstance(into, Tensor):
            name = self._names.get(_address(into))
            if name is not None and _draws_in_place(func):
                return self._draw(name, func, into, args[1:], kwargs or {})
            if isinstance(into, DTensor) and func is torch.ops.aten.copy_.default and not isinstance(args[1], DTensor):
                kept(into).copy_(args[1][kept_part(into)])
                return into
        return func(*args, **(kwargs or {}))

    def _draw(self, name: str, func: Any, into: Tensor, rest: tuple[Any, ...], options: dict[str, Any]) -> Tensor:
        generator = torch.Generator().manual_seed(_seed(self._seed, name, self._draws[name]))
        self._draws[name] += 1
        whole = torch.empty(into.shape, dtype=into.dtype)  # on the CPU: a GPU's generator draws other numbers
        func(whole, *rest, **{**options, "generator": generator})
        kept(into).copy_(whole[kept_part(into)])
        return into


def _draws_in_place(func: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in func.tags and func._schema.name.endswith("_")


def _address(tensor: Tensor) -> int:
    """What a tensor, and what is made of it by detach() or .data, have in common."""
    return kept(tensor).untyped_storage().data_ptr()


def _seed(seed: int, name: str, draw: int) -> int:
    digest = hashlib.blake2b(f"{seed} {name} {draw}".encode(), digest_size=7).digest()
    return int.from_bytes(digest)
