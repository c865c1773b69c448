"""torch's attention kernels for a part of the keys: with log-sum-exp, and gradients given that of all keys.

torch.nn.functional exposes neither, so kernels are called by name: on CPU torch's own, on a GPU flash attention
(Dao 2023) in 16 bits, and the memory-efficient kernel (Rabe & Staats 2021) otherwise.
"""

from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import pad

aten = torch.ops.aten
FILLED = 32
"""The memory-efficient kernel pads log-sum-exp to a multiple of this many positions."""


def attended(query: Tensor, key: Tensor, value: Tensor, *, causal: bool, scale: float | None) -> tuple[Tensor, Tensor]:
    """Attention without dropout.

    Args:
        query: (B, heads, positions, width).
        key: (B, heads, other positions, width).
        value: like `key`.
        causal: whether a query sees only the keys up to its own index.
        scale: factor of products; None means 1 / sqrt(width).

    Returns:
        The attention, shaped like `query`, and the log-sum-exp of each query's scores, fp32 (B, heads, positions).
    """
    inputs = (query, key, value)
    match _kernel(query):
        case "cpu":
            output, sums = aten._scaled_dot_product_flash_attention_for_cpu(*inputs, 0.0, causal, scale=scale)
        case "flash":
            output, sums, *_ = aten._scaled_dot_product_flash_attention(*inputs, 0.0, causal, scale=scale)
        case "efficient":
            output, sums, *_ = aten._scaled_dot_product_efficient_attention(
                *inputs, attn_bias=None, compute_log_sumexp=True, is_causal=causal, scale=scale
            )
    return output, sums[..., : query.shape[2]]


def gradients(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    sums: Tensor,
    *,
    causal: bool,
    scale: float | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of query, key and value.

    Args:
        gradient: of the attention over all keys.
        query: as in attended(); so are key, value, causal and scale.
        key: some of the keys that the queries see.
        value: of these keys.
        output: the attention over all keys.
        sums: the log-sum-exp over all keys, as from attended().
        causal: for these keys.
        scale: factor of products.
    """
    inputs = (gradient, query, key, value)
    none = torch.empty((), dtype=torch.int64, device=query.device)  # seeds of dropout, which is unused
    match _kernel(query):
        case "cpu":
            trailing: tuple[Any, ...] = (output, sums, 0.0, causal)
            grads = aten._scaled_dot_product_flash_attention_for_cpu_backward(*inputs, *trailing, scale=scale)
        case "flash":
            lengths = (None, None, query.shape[2], key.shape[2])  # no cumulative lengths: all sequences have one length
            trailing = (output, sums, *lengths, 0.0, causal, none, none)
            grads = aten._scaled_dot_product_flash_attention_backward(*inputs, *trailing, scale=scale)
        case "efficient":
            padded = pad(sums, (0, -sums.shape[-1] % FILLED), value=torch.inf)
            trailing = (None, output, padded, none, none, 0.0, [True, True, True, False], causal)
            grads = aten._scaled_dot_product_efficient_attention_backward(*inputs, *trailing, scale=scale)
    return grads[0], grads[1], grads[2]


def _kernel(query: Tensor) -> Literal["cpu", "flash", "efficient"]:
    if query.device.type == "cpu":
        return "cpu"
    narrow, width = query.dtype in (torch.bfloat16, torch.float16), query.shape[-1]
    return "flash" if narrow and width % 8 == 0 and width <= 256 else "efficient"
