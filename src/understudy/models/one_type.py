"""A check, without kernels, for operations whose kernels take tensors of one floating-point type only.

On FakeTensors nearly every operation succeeds: the product of fp32 and bf16 has a shape and a type, though no kernel.
The operations listed here were compared with torch 2.15's kernels.
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
"""Weight, bias and running means must have one type, which may be wider than the input's."""


class MixedTypes(RuntimeError):
    """An operation has no kernel for tensors of these types together."""


class OneType(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Raise MixedTypes within the context for operations that would have no kernel."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Check and run one operation."""
        operation = func.overloadpacket
        if operation in ONE_TYPE or operation in NORMS:
            leaves = tree_leaves((args, kwargs or {}))
            dtypes = [leaf.dtype for leaf in leaves if isinstance(leaf, Tensor) and leaf.is_floating_point()]
            if _differ(dtypes) if operation in ONE_TYPE else _differ(dtypes[1:]) or _narrower(dtypes):
                names = " and ".join(sorted({str(dtype).removeprefix("torch.") for dtype in dtypes}))
                raise MixedTypes(f"{operation.__name__} does not take {names} together")
        return func(*args, **(kwargs or {}))


def _differ(dtypes: list[torch.dtype]) -> bool:
    return len(set(dtypes)) > 1


def _narrower(dtypes: list[torch.dtype]) -> bool:
    """Whether a norm's weight has a narrower type than its input, which comes first."""
    return any(torch.promote_types(dtypes[0], dtype) != dtype for dtype in dtypes[1:])
