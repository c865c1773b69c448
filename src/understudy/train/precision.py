"""The floating-point type in which a device computes."""

from contextlib import AbstractContextManager, nullcontext

import torch

from understudy.errors import InputError

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
BESIDE_FLOAT8 = "bf16"
"""The type of other operations where linear layers compute in fp8."""
BF16_FROM = (8, 0)
"""The compute capability of the first GPUs with bf16 (Ampere)."""
FLOAT8_FROM = (8, 9)
"""The compute capability of the first GPUs with fp8 (Ada, Hopper)."""


def precision(name: str, device: torch.device) -> torch.dtype:
    """The type for a recipe's precision; auto is bf16 where the GPU supports it, fp32 otherwise.

    Raises:
        InputError: the GPU does not support the recipe's bf16 or fp8.
    """
    if name == "fp8":
        if device.type == "cuda" and torch.cuda.get_device_capability(device) < FLOAT8_FROM:
            gpu = torch.cuda.get_device_name(device)
            raise InputError(f"train.precision: {gpu} does not compute in fp8; use bf16, or fp16 where it has none")
        return PRECISIONS[BESIDE_FLOAT8]
    has_bf16 = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    if name == "bf16" and device.type == "cuda" and not has_bf16:
        raise InputError(f"train.precision: {torch.cuda.get_device_name(device)} does not compute in bf16; use fp32")
    if name == "auto":
        return torch.bfloat16 if has_bf16 else torch.float32
    return PRECISIONS[name]


def autocast(dtype: torch.dtype, device: torch.device) -> AbstractContextManager[None]:
    """Context of matrix multiplications in this type; weights and sums stay in fp32."""
    return nullcontext() if dtype is torch.float32 else torch.autocast(device.type, dtype=dtype)
