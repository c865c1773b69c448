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
from understudy.models.rounded import kind_of_products

NUMBERS, GRADIENTS = torch.float8_e4m3fn, torch.float8_e5m2
MULTIPLE = 16
"""All sizes of a product must be multiples of this on a GPU."""
LEAST = 1e-30
"""Lower bound of a tensor's largest absolute value, which may be 0."""


class Float8(nn.Linear):
    """An nn.Linear converted in place by its __class__, which keeps its hooks and all references to it."""

    def forward(self, given: Tensor) -> Tensor:
        """(..., inputs) to (..., outputs)."""
        if not given.numel():  # an expert without tokens: an empty tensor has no maximum
            return super().forward(given)
        inputs = given.to(kind_of_products(given))
        said: Tensor = _Product.apply(inputs.reshape(-1, self.in_features), self.weight)
        said = said.view(*inputs.shape[:-1], self.out_features)
        return said if self.bias is None else said + self.bias.to(said.dtype)


class _Product(torch.autograd.Function):
    """Inputs (n, inputs) times a weight (outputs, inputs): (n, outputs), in the inputs' type."""

    @staticmethod
    def forward(ctx: FunctionCtx, inputs: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(inputs, weight)
        # On a CPU the product is composed of other operations, whose results autocast would round again.
        with torch.autocast(inputs.device.type, enabled=False):
            return _product(_rounded(inputs, NUMBERS), _rounded(weight.T, NUMBERS), inputs.dtype, fast=True)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None]:
        inputs, weight = ctx.saved_tensors
        to_inputs = to_weight = None
        numbers, scale = _rounded(gradients[0], GRADIENTS)
        if ctx.needs_input_grad[0]:
            to_inputs = _product((numbers, scale), _rounded(weight, NUMBERS), inputs.dtype)
        if ctx.needs_input_grad[1]:
            to_weight = _product((numbers.T, scale), _rounded(inputs, NUMBERS), weight.dtype)
        return to_inputs, to_weight


def _rounded(given: Tensor, kind: torch.dtype) -> tuple[Tensor, Tensor]:
    """A tensor rounded to eight bits, and its scale, fp32 ()."""
    most, largest = torch.finfo(kind).max, torch.linalg.vector_norm(given, torch.inf).float()
    scale = most / largest.clamp(min=LEAST)
    return (given.float() * scale).clamp_(-most, most).to(kind), scale.reciprocal()


def _product(
    left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor], kind: torch.dtype, *, fast: bool = False
) -> Tensor:
    """The product of two matrices, in type `kind`; `fast` accumulates with lower precision on GPUs that support it."""
    (one, scale), (other, by) = left, right
    missing = -one.shape[1] % MULTIPLE
    if missing:
        one, other = functional.pad(one, (0, missing)), functional.pad(other, (0, 0, 0, missing))
    # The kernels require the left operand in row-major and the right one in column-major order.
    other = other.T.contiguous().T
    return torch._scaled_mm(one.contiguous(), other, scale, by, out_dtype=kind, use_fast_accum=fast)


def in_float8(model: nn.Module, where: str) -> list[str]:
    """Convert a model's linear layers to float8, in place. Layers that share their weight, layers with sizes that
    kernels do not support, and the last layer, whose errors no later layer compensates, are not converted.

    Args:
        model: whole, before it is sharded; its tensors may be without memory.
        where: the training section's path in the recipe, for errors.

    Returns:
        The names of unconverted layers other than the last: shared weight, unsupported size, or no nn.Linear.

    Raises:
        InputError: the model has no layer that can be converted.
    """
    shared, layers = tied(model), linear_layers(model)
    asked = list(layers)[:-1]
    changed = [name for name in asked if _is_able(layers[name], shared)]
    if not changed:
        raise InputError(
            f"{where}.precision: fp8 is for linear layers (nn.Linear) whose sizes are multiples of {MULTIPLE}, and the "
            "model has none besides its last layer; use bf16"
        )
    for name in changed:
        layers[name].__class__ = Float8
    return [name for name in asked if name not in changed]


def _is_able(layer: nn.Module, shared: set[int]) -> bool:
    if not isinstance(layer, nn.Linear) or id(layer.weight) in shared:
        return False
    return layer.in_features % MULTIPLE == layer.out_features % MULTIPLE == 0
