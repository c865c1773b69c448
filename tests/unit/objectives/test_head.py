"""A linear head's gradient by products is autograd's, in whatever type products are computed."""

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from understudy.objectives import head as heads
from understudy.objectives.head import LinearHead, add_product


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("kind", "exact"), [(torch.float64, 1e-12), (torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
def test_its_gradients_are_those_of_autograd(
    monkeypatch: pytest.MonkeyPatch, bias: bool, kind: torch.dtype, exact: float
) -> None:
    """Of a padded vocabulary, whose last rows get none, a few rows of the weight at a time."""
    monkeypatch.setattr(heads, "AT_A_TIME", 3 * 8)
    torch.manual_seed(0)
    layer = nn.Linear(8, 20, bias=bias).to(torch.float64 if kind is torch.float64 else torch.float32)
    states = torch.randn(6, 8, dtype=layer.weight.dtype, requires_grad=True)
    gradient = torch.randn(6, 17, dtype=layer.weight.dtype)
    expected = torch.autograd.grad(layer(states)[..., :17], (states, *layer.parameters()), gradient)
    head = LinearHead(layer, 17, kind)
    sums = [torch.zeros_like(parameter) for parameter in layer.parameters()]
    of_states = head.gradients(states.detach(), gradient.to(kind), sums)
    assert head.logits(states.detach()).dtype is kind
    for computed, reference in zip((of_states.to(layer.weight.dtype), *sums), expected, strict=True):
        torch.testing.assert_close(computed, reference, rtol=exact, atol=5 * exact)


def test_on_a_gpu_products_of_half_precision_are_summed_in_fp32() -> None:
    """Its operators, on tensors without memory: there is no GPU here."""
    with FakeTensorMode():
        total = torch.empty(50, 8, device="cuda")
        add_product(
            total,
            torch.empty(6, 50, device="cuda", dtype=torch.bfloat16),
            torch.empty(6, 8, device="cuda", dtype=torch.bfloat16),
        )
    assert total.device.type == "cuda"
