"""Linear layers in fewer bits, of either kind: filled row by row, and which layers they are in the place of."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import spectral_norm

from tests.unit.models.small import SIZES, network
from understudy.models.build import build_model, empty_model
from understudy.models.describe import describe
from understudy.models.eight_bits import EightBits
from understudy.models.files import read_weights, save_model
from understudy.models.four_bits import FourBits
from understudy.models.rounded import QuantizedLinear, quantize_linear_layers
from understudy.models.tasks import TextModel
from understudy.recipe import ArchitectureModel

TOKENS = torch.arange(24).view(2, 12) % 64
KINDS = pytest.mark.parametrize("kind", [EightBits, FourBits])


def filled(kind: type[QuantizedLinear], model: nn.Module, full_precision: nn.Module) -> nn.Module:
    """A model in fewer bits, from the weights of another one."""
    return fill(quantize_linear_layers(model, kind), full_precision)


def fill(model: nn.Module, full_precision: nn.Module) -> nn.Module:
    """A model whose layers in fewer bits have the weights of another one."""
    for name, layer in model.named_modules():
        if isinstance(layer, QuantizedLinear):
            weight = full_precision.get_parameter(f"{name}.weight").detach()
            layer.fill(lambda first, last, rows=weight: rows[first:last])
    return model


@KINDS
def test_rows_are_rounded_some_at_a_time(kind: type[QuantizedLinear], monkeypatch: pytest.MonkeyPatch) -> None:
    plain = nn.Sequential(nn.Linear(4, 7), nn.Linear(7, 2))
    at_once = filled(kind, nn.Sequential(nn.Linear(4, 7), nn.Linear(7, 2)), plain).get_submodule("0")
    monkeypatch.setattr("understudy.models.rounded.AT_A_TIME", 8)
    in_parts = filled(kind, nn.Sequential(nn.Linear(4, 7), nn.Linear(7, 2)), plain).get_submodule("0")
    for name in ("numbers", "scales"):
        assert torch.equal(at_once.get_parameter(name), in_parts.get_parameter(name))


@KINDS
def test_a_weight_that_embeddings_share_stays_as_it_is(kind: type[QuantizedLinear]) -> None:
    tied = quantize_linear_layers(TextModel(network("llama", tie_word_embeddings=True), 64), kind)
    head = tied.get_submodule("net.lm_head")
    assert type(head) is nn.Linear
    assert head.weight is tied.get_parameter("net.model.embed_tokens.weight")


@KINDS
def test_a_layer_that_is_named_stays_and_in_four_bits_the_last_one(kind: type[QuantizedLinear]) -> None:
    named = "net.model.layers.0.mlp.up_proj"
    model = quantize_linear_layers(TextModel(network("llama"), 64), kind, excluded={named})
    plain = {name for name, layer in model.named_modules() if type(layer) is nn.Linear}
    assert plain == {named, "net.lm_head"} - ({"net.lm_head"} if kind is EightBits else set())


@KINDS
def test_layers_that_code_of_ones_own_hangs_on_stay(kind: type[QuantizedLinear]) -> None:
    hooked, before = nn.Linear(4, 4), nn.Linear(4, 4)
    hooked.register_forward_hook(lambda layer, inputs, outputs: outputs * 100)
    before.register_forward_pre_hook(lambda layer, inputs: (inputs[0] * 100,))
    layers = nn.Sequential(hooked, before, spectral_norm(nn.Linear(4, 4)), nn.Linear(4, 4), nn.Linear(4, 2))
    changed = [isinstance(layer, kind) for layer in quantize_linear_layers(layers, kind).children()]
    assert changed == [False, False, False, True, kind.skips_last_layer is False]


@KINDS
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_a_saved_model_is_read_into_it(kind: type[QuantizedLinear], name: str, tmp_path: Path) -> None:
    """GPT-2's code looks at weights of layers that it would initialise, were they not there."""
    facts: Any = {"task": "causal-lm", "vocab_size": 64, "eos_id": 0, "sequence_length": 16}
    sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2} if name == "gpt2" else {**SIZES, "vocab_size": 64}
    description = describe(ArchitectureModel(type=name, config=sizes), facts, "teacher.model")
    full_precision = build_model(description)
    save_model(
        tmp_path,
        {key: tensor for key, tensor in full_precision.state_dict().items() if "lm_head" not in key or name == "llama"},
        description,
    )
    few = quantize_linear_layers(empty_model(description), kind)
    read_weights(few, tmp_path, torch.device("cpu"), full_model=empty_model(description))
    expected = fill(quantize_linear_layers(deepcopy(full_precision), kind), full_precision).eval()
    with torch.inference_mode():
        assert torch.equal(few.eval()(TOKENS).logits, expected(TOKENS).logits)
    assert not [layer for layer in few.modules() if isinstance(layer, QuantizedLinear) and hasattr(layer, "weight")]


@KINDS
def test_code_that_reads_the_weight_and_does_not_call_the_layer_fails(kind: type[QuantizedLinear]) -> None:
    layer = quantize_linear_layers(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), kind).get_submodule("0")
    with pytest.raises(AttributeError, match="weight"):
        layer.weight  # noqa: B018
