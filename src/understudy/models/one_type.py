"""Operations whose kernels take tensors of one floating-point type, refused where no kernel runs.

Without memory torch finds a shape and a type for the product of fp32 and bf16: of FakeTensors nearly every operation is
taken. What is here was compared with torch 2.15's kernels.
"""

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

aten = torch.ops.aten
ONE_TYPE = {
    aten.mm,
    aten.addmm,
    aten.mv,
    aten.addmv,
    aten.convolution,
    aten.index_add,
    aten.index_add_,
    aten.index_put,
    aten.index_put_,
    aten.grid_sampler_2d,
    aten.grid_sampler_3d,
}
NORMS = {aten.native_layer_norm, aten.native_group_norm, aten.native_batch_norm}
"""Their weight, bias and running means are of one type, which may be a wider one than the input's."""


class MixedTypes(RuntimeError):
    """An operation was given tensors of several types, and has no kernel for them."""


class OneType(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within it, an operation that would have no kernel raises MixedTypes."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """One operation."""
        operation = func.overloadpacket
        if operation in ONE_TYPE or operation in NORMS:
            leaves = tree_leaves((args, kwargs or {}))
            kinds = [leaf.dtype for leaf in leaves if isinstance(leaf, Tensor) and leaf.is_floating_point()]
            if _differ(kinds) if operation in ONE_TYPE else _differ(kinds[1:]) or _narrower(kinds):
                names = " and ".join(sorted({str(kind).removeprefix("torch.") for kind in kinds}))
                raise MixedTypes(f"{operation.__name__} does not take {names} together")
        return func(*args, **(kwargs or {}))


def _differ(kinds: list[torch.dtype]) -> bool:
    return len(set(kinds)) > 1


def _narrower(kinds: list[torch.dtype]) -> bool:
    """Whether a norm's weight is of a narrower type than its input, which is the first."""
    return any(torch.promote_types(kinds[0], kind) != kind for kind in kinds[1:])
