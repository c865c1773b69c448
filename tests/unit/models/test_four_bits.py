"""NF4 layers: their levels, their rounding, the products with them, and gradients that go through."""

import numpy as np
import pytest
import torch
from torch import nn

from tests.unit.models.small import network
from tests.unit.models.test_rounded import filled
from understudy.models.four_bits import BLOCK, LEVELS, FourBits
from understudy.models.tasks import TextModel

TOKENS = torch.arange(24).view(2, 12) % 64


def seen_by_numpy(weight: np.ndarray) -> np.ndarray:
    """A weight after its rounding, number by number."""
    levels, result = np.array(LEVELS, dtype=np.float32), np.zeros_like(weight)
    for row in range(len(weight)):
        for first in range(0, weight.shape[1], BLOCK):
            block = weight[row, first : first + BLOCK]
            scale = torch.tensor(np.abs(block).max()).bfloat16().float().item()
            nearest = np.abs(block[:, None] / scale - levels).argmin(axis=1)
            result[row, first : first + BLOCK] = levels[nearest] * scale
    return result


def test_levels_are_quantiles_of_the_normal_distribution() -> None:
    """As the paper's code makes them: eight above 0 and seven below, both ends at 1 / 32 and 1 / 30 from certainty."""
    end = 1 - (1 / 32 + 1 / 30) / 2
    above = torch.special.ndtri(torch.linspace(end, 0.5, 9, dtype=torch.float64)[:-1])
    below = -torch.special.ndtri(torch.linspace(end, 0.5, 8, dtype=torch.float64)[:-1])
    levels = torch.cat([above, below, torch.zeros(1, dtype=torch.float64)]).sort().values
    torch.testing.assert_close(torch.tensor(LEVELS, dtype=torch.float64), levels / levels.max(), rtol=0, atol=2e-7)


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_it_computes_with_the_weights_that_its_levels_and_scales_are(kind: str) -> None:
    plain = TextModel(network(kind, hidden_size=80, intermediate_size=72), 64)
    with torch.inference_mode():
        exact = plain(TOKENS).logits
    ours = filled(FourBits, TextModel(network(kind, hidden_size=80, intermediate_size=72), 64), plain)
    layers = {name: layer for name, layer in ours.named_modules() if isinstance(layer, FourBits)}
    assert len(layers) == {"llama": 4 * 7, "gpt2": 4 * 4}[kind]
    for name, layer in layers.items():
        weight = plain.get_parameter(f"{name}.weight")
        weight.data = torch.from_numpy(seen_by_numpy(weight.detach().numpy()))
        assert torch.equal(layer.local_weight(), weight)
    with torch.inference_mode():
        torch.testing.assert_close(ours(TOKENS).logits, plain(TOKENS).logits, rtol=1e-5, atol=1e-6)
        assert not torch.equal(ours(TOKENS).logits, exact)


def test_a_rank_may_have_no_rows() -> None:
    layer = FourBits(nn.Linear(100, 2, bias=False))
    layer.numbers, layer.scales = (
        nn.Parameter(all_[:0], requires_grad=False) for all_ in (layer.numbers, layer.scales)
    )
    layer.fill(lambda first, last: torch.zeros(last - first, 100))
    assert layer.local_weight().shape == (0, 100)


def test_it_takes_four_bits_for_each_number_and_sixteen_for_each_block() -> None:
    layer = FourBits(nn.Linear(4096, 256, bias=False))
    assert sum(weight.nbytes for weight in layer.parameters()) == 256 * 4096 * (4 + 16 / BLOCK) / 8


@pytest.mark.parametrize("turned", [False, True])
def test_gradients_go_through_as_through_the_plain_layer(turned: bool) -> None:
    from transformers.pytorch_utils import Conv1D

    def layers() -> nn.Sequential:
        torch.manual_seed(0)
        return nn.Sequential(Conv1D(70, 100) if turned else nn.Linear(100, 70), nn.Linear(70, 1))

    plain = layers()
    ours = filled(FourBits, layers(), plain)
    plain[0].weight.data = ours[0].local_weight()  # type: ignore[index, operator, union-attr]
    mine, same_inputs = (torch.randn(3, 5, 100, generator=torch.Generator().manual_seed(1)) for _ in range(2))
    for model, inputs in ((ours, mine), (plain, same_inputs)):
        model(inputs.requires_grad_()).square().sum().backward()
    assert mine.grad is not None
    torch.testing.assert_close(mine.grad, same_inputs.grad, rtol=1e-5, atol=1e-6)


def test_products_are_in_the_type_that_is_computed_in() -> None:
    layer = filled(FourBits, nn.Sequential(nn.Linear(64, 8), nn.Linear(8, 2)), nn.Sequential(nn.Linear(64, 8)))[0]  # type: ignore[index]
    inputs = torch.randn(3, 64, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        half = layer(inputs)
    assert half.dtype is torch.bfloat16
    torch.testing.assert_close(half.float(), layer(inputs), rtol=0.03, atol=0.03)
    half.sum().backward()
    assert inputs.grad is not None
    assert inputs.grad.dtype is torch.float32


def test_a_block_of_zeros_stays_and_one_that_is_no_number_is_heard() -> None:
    layer = FourBits(nn.Linear(2 * BLOCK, 2, bias=False))
    rows = torch.zeros(2, 2 * BLOCK)
    rows[1, 0] = float("nan")
    layer.fill(lambda first, last: rows[first:last])
    assert not layer.local_weight()[0].any()
    assert layer.local_weight()[1].isnan().tolist() == [True] * BLOCK + [False] * BLOCK
