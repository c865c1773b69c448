"""Numbers are those of tests/ranks/parallel/test_ring.py; here are the kernels that a GPU has, as far as shapes go."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import scaled_dot_product_attention

from understudy.parallel.kernels import _kernel, attended, gradients


@pytest.mark.parametrize("causal", [False, True])
def test_parts_are_those_of_torchs_attention(causal: bool) -> None:
    query, key, value, back = (torch.randn(2, 3, 6, 8, requires_grad=True) for _ in range(4))
    reference = scaled_dot_product_attention(query, key, value, is_causal=causal, scale=0.5)
    expected = torch.autograd.grad(reference, (query, key, value), back)
    inputs = [tensor.detach() for tensor in (query, key, value)]
    output, sums = attended(*inputs, causal=causal, scale=0.5)
    torch.testing.assert_close(output, reference.detach())
    products = 0.5 * inputs[0] @ inputs[1].mT
    visible = products.masked_fill(torch.ones(6, 6, dtype=torch.bool).triu(1), -torch.inf) if causal else products
    torch.testing.assert_close(sums, visible.logsumexp(-1))
    grads = gradients(back.detach(), *inputs, output, sums, causal=causal, scale=0.5)
    for gradient, expected_gradient in zip(grads, expected, strict=True):
        torch.testing.assert_close(gradient, expected_gradient)


@pytest.mark.parametrize(
    ("kind", "width", "name"),
    [
        (torch.bfloat16, 64, "flash"),
        (torch.bfloat16, 12, "efficient"),
        (torch.bfloat16, 512, "efficient"),
        (torch.float32, 64, "efficient"),
    ],
)
def test_a_gpu_has_kernels_of_its_own(kind: torch.dtype, width: int, name: str) -> None:
    with FakeTensorMode():
        query, key, value = (torch.empty(2, 3, length, width, dtype=kind, device="cuda") for length in (5, 10, 10))
        assert _kernel(query) == name
        output, sums = attended(query, key, value, causal=False, scale=None)
        assert output.shape == query.shape
        assert sums.shape == query.shape[:-1]
        assert sums.dtype == torch.float32
        grads = gradients(query, query, key, value, output, sums, causal=False, scale=None)
        assert [grad.shape for grad in grads] == [query.shape, key.shape, value.shape]
