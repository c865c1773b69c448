"""Attention as in a training on a GPU, although planned tensors are on a CPU and have no values.

- In fp32 a GPU has no fused kernel for grouped-query attention: torch materialises the attention weights, and keeps
  them for the backward pass. A CPU has one.
- transformers inspects a batch's positions for packed documents, and builds a mask if it cannot read them. The recipe
  states whether documents are packed.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import wraps
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel


@contextmanager
def attention_of(device: str, *, packed: bool) -> Iterator[None]:
    """Within the context, attention takes as much memory as in a training.

    Args:
        device: of the training, cpu or cuda.
        packed: whether sequences consist of several documents.
    """
    from transformers import masking_utils

    plain = functional.scaled_dot_product_attention

    @wraps(plain)
    def attention(query: Tensor, key: Tensor, *args: Any, **kwargs: Any) -> Any:
        if device == "cpu" or _is_fused(query, key):
            return plain(query, key, *args, **kwargs)
        with sdpa_kernel(SDPBackend.MATH):
            return plain(query, key, *args, **kwargs)

    context = nullcontext() if packed else patch.object(masking_utils, "find_packed_sequence_indices", lambda _: None)
    with patch.object(functional, "scaled_dot_product_attention", attention), context:
        yield


def _is_fused(query: Tensor, key: Tensor) -> bool:
    """Whether there is a fused kernel for a query and a key of (B, heads, positions, width) each."""
    full = query.dtype is torch.float32 and not torch.is_autocast_enabled("cpu")
    return not full or query.shape[-3] == key.shape[-3]
