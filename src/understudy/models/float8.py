"""Linear layers whose products are computed in eight-bit floating point (Micikevicius et al. 2022).

Weights, inputs and sums keep their types. For each product both sides are scaled to the largest number of the whole
tensor and rounded: weights and inputs to e4m3, gradients to e5m2, whose numbers go further. It is what torchao calls
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
"""What all sizes of a product have to be multiples of on a GPU."""
LEAST = 1e-30
"""What the largest number of a tensor counts as, at the least: it may be 0."""


class Float8(nn.Linear):
    """What any nn.Linear becomes by its class alone: its hooks, and who else has it, stay."""

    def forward(self, given: Tensor) -> Tensor:
        """(..., inputs) to (..., outputs)."""
        if not given.numel():  # an expert without tokens; of nothing there is no largest number
            return super().forward(given)
        inputs = given.to(kind_of_products(given))
        said: Tensor = _Product.apply(inputs.reshape(-1, self.in_features), self.weight)
        said = said.view(*inputs.shape[:-1], self.out_features)
        return said if self.bias is None else said + self.bias.to(said.dtype)


class _Product(torch.autograd.Function):
    """Inputs (n, inputs) by a weight (outputs, inputs): (n, outputs), in the inputs' type."""

    @staticmethod
    def forward(ctx: FunctionCtx, inputs: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(inputs, weight)
        # On a CPU the product is made of others, which autocast would round once more.
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
    """A tensor in eight bits, and what to multiply it by, fp32 ()."""
    most, largest = torch.finfo(kind).max, torch.linalg.vector_norm(given, torch.inf).float()
    scale = most / largest.clamp(min=LEAST)
    return (given.float() * scale).clamp_(-most, most).to(kind), scale.reciprocal()


def _product(
    left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor], kind: torch.dtype, *, fast: bool = False
) -> Tensor:
    """Of two matrices, in that type; fast sums some bits less exactly, on GPUs that can."""
    (one, scale), (other, by) = left, right
    missing = -one.shape[1] % MULTIPLE
    if missing:
        one, other = functional.pad(one, (0, missing)), functional.pad(other, (0, 0, 0, missing))
    # The kernels want rows of the one and columns of the other.
    other = other.T.contiguous().T
    return torch._scaled_mm(one.contiguous(), other, scale, by, out_dtype=kind, use_fast_accum=fast)


def in_float8(model: nn.Module, where: str) -> list[str]:
    """Let a model's linear layers compute in float8, in place, but the last, whose errors no other one makes up for,
    those whose weight others have, too, and those that have sizes which no kernel takes.

    Args:
        model: whole, before it is spread over ranks; its tensors may be without memory.
        where: the recipe's path of the training, for errors.

    Returns:
        The names of the layers that stay for their sizes, or because others have their weight, besides the last.

    Raises:
        InputError: it has no layer that can.
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
