"""Linear layers whose products are computed in eight-bit floating point (Micikevicius et al. 2022).

Weights, inputs and sums keep their types. For each product both operands are scaled by the largest absolute value of
the whole tensor and rounded: weights and inputs to e4m3, gradients to e5m2, which has a wider range. torchao calls this
dynamic tensorwise scaling.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx
from torch.nn import functional

from understudy.errors import InputError
from understudy.models.linear import linear_layers, tied
from understudy.models.rounded import product_dtype

NUMBERS, GRADIENTS = torch.float8_e4m3fn, torch.float8_e5m2
MULTIPLE = 16
"""All sizes of a product must be multiples of this on a GPU."""
LEAST = 1e-30
"""Lower bound of a tensor's largest absolute value, which may be 0."""


class Float8(nn.Linear):
    """An nn.Linear converted in place by its __class__, which keeps its hooks and all references to it."""

    def forward(self, inputs: Tensor) -> Tensor:
        """(..., inputs) to (..., outputs)."""
        if not inputs.numel():  # an expert without tokens: an empty tensor has no maximum
            return super().forward(inputs)
        converted = inputs.to(product_dtype(inputs))
        outputs: Tensor = _Product.apply(converted.reshape(-1, self.in_features), self.weight)
        outputs = outputs.view(*converted.shape[:-1], self.out_features)
        return outputs if self.bias is None else outputs + self.bias.to(outputs.dtype)


class _Product(torch.autograd.Function):
    """Inputs (n, inputs) times a weight (outputs, inputs): (n, outputs), in the inputs' type."""

    @staticmethod
    def forward(ctx: FunctionCtx, converted: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(converted, weight)
        # On a CPU the product is composed of other operations, whose results autocast would round again.
        with torch.autocast(converted.device.type, enabled=False):
            return _product(_quantized(converted, NUMBERS), _quantized(weight.T, NUMBERS), converted.dtype, fast=True)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None]:
        inputs, weight = ctx.saved_tensors
        to_inputs = to_weight = None
        numbers, scale = _quantized(gradients[0], GRADIENTS)
        if ctx.needs_input_grad[0]:
            to_inputs = _product((numbers, scale), _quantized(weight, NUMBERS), inputs.dtype)
        if ctx.needs_input_grad[1]:
            to_weight = _product((numbers.T, scale), _quantized(inputs, NUMBERS), weight.dtype)
        return to_inputs, to_weight


def _quantized(tensor: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """A tensor rounded to eight bits, and its scale, fp32 ()."""
    limit, largest = torch.finfo(dtype).max, torch.linalg.vector_norm(tensor, torch.inf).float()
    scale = limit / largest.clamp(min=LEAST)
    return (tensor.float() * scale).clamp_(-limit, limit).to(dtype), scale.reciprocal()


def _product(
    left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor], dtype: torch.dtype, *, fast: bool = False
) -> Tensor:
    """The product of two matrices, in type `dtype`; `fast` accumulates with lower precision on GPUs that support it."""
    (a, a_scale), (b, b_scale) = left, right
    missing = -a.shape[1] % MULTIPLE
    if missing:
        a, b = (
            functional.pad(a, (0, missing)),
            functional.pad(b, (0, 0, 0, missing)),
        )
    # The kernels require the left operand in row-major and the right one in column-major order.
    b = b.T.contiguous().T
    return torch._scaled_mm(a.contiguous(), b, a_scale, b_scale, out_dtype=dtype, use_fast_accum=fast)


def convert_to_float8(model: nn.Module, section: str) -> list[str]:
    """Convert a model's linear layers to float8, in place. Layers that share their weight, layers with sizes that
    kernels do not support, and the last layer, whose errors no later layer compensates, are not converted.

    Args:
        model: the full model, before it is sharded; its tensors may be without memory.
        section: the training section's path in the recipe, for errors.

    Returns:
        The names of unconverted layers other than the last: shared weight, unsupported size, or no nn.Linear.

    Raises:
        InputError: the model has no layer that can be converted.
    """
    shared, layers = tied(model), linear_layers(model)
    candidates = list(layers)[:-1]
    converted = [name for name in candidates if _is_convertible(layers[name], shared)]
    if not converted:
        raise InputError(
            f"{section}.precision: fp8 is for linear layers (nn.Linear) whose sizes are multiples of {MULTIPLE}, and "
            "the model has none besides its last layer; use bf16"
        )
    for name in converted:
        layers[name].__class__ = Float8
    return [name for name in candidates if name not in converted]


def _is_convertible(layer: nn.Module, shared: set[int]) -> bool:
    if not isinstance(layer, nn.Linear) or id(layer.weight) in shared:
        return False
    return layer.in_features % MULTIPLE == layer.out_features % MULTIPLE == 0
