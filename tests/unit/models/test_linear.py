"""Which layers are linear."""

import pytest
from torch import nn

from tests.unit.models.small import network
from understudy.models.linear import is_transposed, linear_layers, tied
from understudy.models.tasks import TextModel


@pytest.mark.parametrize(("kind", "turned"), [("llama", False), ("gpt2", True)])
def test_those_of_torch_and_of_gpt2_are(kind: str, turned: bool) -> None:
    layers = linear_layers(network(kind))
    assert len(layers) == {"llama": 4 * 7 + 1, "gpt2": 4 * 4 + 1}[kind]
    assert {is_transposed(layer) for name, layer in layers.items() if name != "lm_head"} == {turned}


def test_what_is_read_without_being_called_is_not() -> None:
    assert linear_layers(nn.MultiheadAttention(4, 2)) == {}


def test_a_weight_of_two_layers_is_tied() -> None:
    assert tied(TextModel(network("llama"), 64)) == set()
    model = TextModel(network("llama", tie_word_embeddings=True), 64)
    assert tied(model) == {id(model.get_parameter("net.lm_head.weight"))}
