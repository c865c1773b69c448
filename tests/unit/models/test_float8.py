"""Layers in float8: which ones, their rounding, the products, and gradients beside those of a formula written out."""

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import spectral_norm, weight_norm

from tests.unit.models.small import network
from understudy.errors import InputError
from understudy.models.float8 import Float8, convert_to_float8
from understudy.models.tasks import TextModel

TOKENS = torch.arange(24).view(2, 12) % 64
WIDE = {"hidden_size": 32, "intermediate_size": 48}


def seen_by_numpy(values: np.ndarray, mantissa: int, least: int, most: float) -> np.ndarray:
    """A tensor after its rounding, number by number: to so many bits behind the first, powers from `least` on."""
    scale = np.float32(most) / np.float32(np.abs(values).max())
    scaled = values.astype(np.float32) * scale
    power = np.maximum(np.floor(np.log2(np.maximum(np.abs(scaled), 1e-30))), least)
    unit = np.exp2(power - mantissa)
    return np.clip(np.round(scaled / unit) * unit, -most, most) / scale


def e4m3(values: np.ndarray) -> np.ndarray:
    return seen_by_numpy(values, 3, -6, 448.0)


def e5m2(values: np.ndarray) -> np.ndarray:
    return seen_by_numpy(values, 2, -14, 57344.0)


def eight(layer: nn.Linear) -> nn.Linear:
    layer.__class__ = Float8
    return layer


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [16, 7], ids=["rows that kernels take", "rows in between"])
def test_products_are_those_of_rounded_numbers(bias: bool, rows: int) -> None:
    torch.manual_seed(0)
    layer = ours = eight(nn.Linear(32, 48, bias=bias))
    inputs, gradient = torch.randn(2, rows, 32, requires_grad=True), torch.randn(2, rows, 48)
    gradient *= torch.logspace(-6, 3, 48)  # far apart, as gradients are
    outputs = ours(inputs)
    outputs.backward(gradient)
    x, w, g = (t.detach().flatten(0, -2).numpy() for t in (inputs, layer.weight, gradient))
    expected = e4m3(x) @ e4m3(w).T + (layer.bias.detach().numpy() if bias else 0)
    np.testing.assert_allclose(outputs.detach().flatten(0, 1), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(inputs.grad.flatten(0, 1), e5m2(g) @ e4m3(w), rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(layer.weight.grad, e5m2(g).T @ e4m3(x), rtol=1e-4, atol=1e-2)
    if bias:
        np.testing.assert_allclose(layer.bias.grad, gradient.sum((0, 1)), rtol=1e-5)


def test_it_follows_autocast_and_keeps_gradients_of_weights_exact() -> None:
    layer = eight(nn.Linear(32, 48))
    with torch.autocast("cpu", torch.bfloat16):
        outputs = layer(torch.randn(4, 32))
    assert outputs.dtype is torch.bfloat16
    outputs.float().sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.dtype is torch.float32


def test_autocast_rounds_no_product_once_more() -> None:
    """Below a mode, as selective checkpointing is one, there is no autocast: it would be another model there."""
    layer, inputs = eight(nn.Linear(512, 32, bias=False)), torch.randn(16, 512)
    with torch.autocast("cpu", torch.bfloat16):
        outputs = layer(inputs)
    assert torch.equal(outputs, layer(inputs.bfloat16()))


@pytest.mark.parametrize("shape", [(32,), (0, 32), (2, 0, 32), (1, 32), (2, 3, 5, 32)])
def test_inputs_have_the_shapes_that_a_linear_layer_takes(shape: tuple[int, ...]) -> None:
    plain = nn.Linear(32, 48)
    ours, inputs = eight(copy.deepcopy(plain)), torch.randn(shape, requires_grad=True)
    outputs = ours(inputs)
    assert outputs.shape == plain(inputs).shape
    outputs.sum().backward()
    assert inputs.grad is not None
    assert inputs.grad.shape == shape
    assert ours.weight.grad is not None


@pytest.mark.parametrize("factor", [2.0**-80, 2.0**40])
def test_how_large_numbers_are_changes_no_rounding(factor: float) -> None:
    torch.manual_seed(0)
    results = []
    for scale in (1.0, factor):
        layer, inputs = eight(nn.Linear(32, 48, bias=False)), torch.ones(4, 32, requires_grad=True)
        nn.init.constant_(layer.weight, 0.3)
        outputs = layer(inputs)
        outputs.backward(torch.linspace(0.1, 1, 48).expand(4, 48) * scale)
        assert inputs.grad is not None
        assert layer.weight.grad is not None
        results.append((inputs.grad / scale, layer.weight.grad / scale))
    torch.testing.assert_close(results[0], results[1], rtol=1e-5, atol=0)


def test_what_is_frozen_gets_no_gradient() -> None:
    layer, inputs = eight(nn.Linear(32, 48)), torch.randn(4, 32, requires_grad=True)
    layer.weight.requires_grad_(requires_grad=False)
    layer(inputs).sum().backward()
    assert layer.weight.grad is None
    assert inputs.grad is not None


def test_zeros_stay_zeros_and_what_is_no_number_is_seen() -> None:
    layer = eight(nn.Linear(32, 48, bias=False))
    assert not layer(torch.zeros(16, 32)).any()
    for not_finite in (torch.nan, torch.inf):
        inputs = torch.ones(16, 32)
        inputs[3, 4] = not_finite
        assert not layer(inputs).isfinite().all()


def test_all_layers_but_the_last_compute_in_float8() -> None:
    plain = TextModel(network("llama", **WIDE), 64)
    model = copy.deepcopy(plain)
    assert convert_to_float8(model, "student.train") == []
    changed = [name for name, layer in model.named_modules() if isinstance(layer, Float8)]
    assert len(changed) == 4 * 7
    assert model.state_dict().keys() == plain.state_dict().keys()
    with torch.inference_mode():
        exact, logits = plain(TOKENS).logits, model(TOKENS).logits
    assert 0 < (logits - exact).norm() / exact.norm() < 0.1


def test_a_layers_hooks_stay() -> None:
    model = nn.Sequential(nn.Linear(32, 32, bias=False), nn.Linear(32, 4))
    model[0].register_forward_hook(lambda layer, inputs, outputs: outputs * 100)
    plain = copy.deepcopy(model)
    convert_to_float8(model, "student.train")
    inputs = torch.randn(5, 32)
    assert isinstance(model[0], Float8)
    torch.testing.assert_close(model[0](inputs), plain[0](inputs), rtol=0.1, atol=20)
    assert model[0](inputs).abs().mean() > 20


@pytest.mark.parametrize("changes", [weight_norm, spectral_norm])
@pytest.mark.filterwarnings("ignore:.torch.nn.utils.weight_norm. is deprecated:FutureWarning")
def test_a_layer_whose_weight_is_made_of_others_stays(changes: Callable[[nn.Module], nn.Module]) -> None:
    model = nn.Sequential(nn.Linear(32, 32), changes(nn.Linear(32, 32)), nn.Linear(32, 4))
    convert_to_float8(model, "student.train")
    assert [type(layer) for layer in model] == [Float8, nn.Linear, nn.Linear]
    model(torch.randn(5, 32)).sum().backward()


def test_layers_of_other_sizes_stay() -> None:
    model = TextModel(network("llama", hidden_size=32, intermediate_size=24), 64)
    unconverted = convert_to_float8(model, "student.train")
    assert {name.rsplit(".", 1)[-1] for name in unconverted} == {"gate_proj", "up_proj", "down_proj"}
    changed = {name.rsplit(".", 1)[-1] for name, layer in model.named_modules() if isinstance(layer, Float8)}
    assert changed == {"q_proj", "k_proj", "v_proj", "o_proj"}


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_a_model_without_such_layers_is_refused(kind: str) -> None:
    sizes = WIDE if kind == "gpt2" else {"hidden_size": 24}
    model = TextModel(network(kind, **sizes), 64)
    with pytest.raises(
        InputError, match=r"student\.train\.precision: fp8 is for linear layers \(nn\.Linear\) .*; use bf16"
    ):
        convert_to_float8(model, "student.train")
