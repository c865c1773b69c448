"""The cache of a served model for a sequence, compared with the caches of transformers, and by hand."""

from typing import Any

import pytest
import torch

from tests.ranks.train.jobs import BERT, VIT
from tests.unit.plan.test_weights import IMAGES, TEXT
from understudy.models.build import build_model
from understudy.models.describe import describe
from understudy.models.facts import Facts
from understudy.plan.serving import serving
from understudy.recipe import ArchitectureModel, FactoryModel

LENGTH = 32
LONG: Facts = {**TEXT, "sequence_length": LENGTH}
SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_hidden_layers": 3}
GROUPED = {**SIZES, "num_key_value_heads": 2}
WINDOW = {**GROUPED, "sliding_window": 8}
KEPT = 7
"""Of a window of 8: the last position is the new token's own."""
MODELS: list[tuple[str, dict[str, Any], int]] = [
    # layers x 2 x heads of keys x width of a head x positions
    ("llama", GROUPED, 3 * 2 * 2 * 16 * LENGTH),
    ("gpt2", {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": LENGTH}, 2 * 2 * 4 * 16 * LENGTH),
    ("mistral", WINDOW, 3 * 2 * 2 * 16 * KEPT),
    (
        "qwen2",  # layers from the second on have the window
        {**WINDOW, "use_sliding_window": True, "max_window_layers": 1},
        2 * 2 * 16 * (1 * LENGTH + 2 * KEPT),
    ),
    ("qwen2", WINDOW, 3 * 2 * 2 * 16 * LENGTH),  # which has a window where it is told to use it
]


@pytest.mark.parametrize(("kind", "config", "numbers"), MODELS)
def test_keys_and_values_are_those_of_a_real_cache(kind: str, config: dict[str, Any], numbers: int) -> None:
    description = describe(ArchitectureModel(type=kind, config=config), LONG, "student.model")
    net = build_model(description).get_submodule("net").eval()
    with torch.no_grad():
        cache = net(torch.zeros(1, LENGTH, dtype=torch.int64), use_cache=True).past_key_values
    real = sum(tensor.nbytes for layer in cache.layers for tensor in (layer.keys, layer.values))
    assert serving(description, "student.model", "fp32").cache == real == 4 * numbers


def test_a_mamba_keeps_a_state_as_large_for_any_length() -> None:
    config = {"hidden_size": 16, "num_hidden_layers": 2, "state_size": 4, "expand": 2, "conv_kernel": 4}
    inner = 2 * 16
    for length in (8, 16):
        facts: Facts = {**TEXT, "sequence_length": length}
        description = describe(ArchitectureModel(type="mamba", config=config), facts, "student.model")
        assert serving(description, "student.model", "fp32").cache == 4 * 2 * inner * (4 + 4)


@pytest.mark.parametrize(("model", "facts"), [(VIT, IMAGES)])
def test_a_model_of_images_has_no_cache(model: dict[str, Any], facts: Facts) -> None:
    description = describe(ArchitectureModel.model_validate(model), facts, "student.model")
    assert serving(description, "student.model", "fp32").cache == 0


def test_a_bert_that_is_a_decoder_has_a_decoders_cache() -> None:
    description = describe(ArchitectureModel.model_validate(BERT), TEXT, "student.model")
    assert serving(description, "student.model", "fp32").cache == 4 * 2 * 2 * 16 * 16


def custom_model(vocab_size: int) -> torch.nn.Module:
    return torch.nn.Embedding(vocab_size, vocab_size)


def test_a_users_own_model_has_no_known_cache() -> None:
    description = describe(FactoryModel(factory=f"{__name__}:custom_model"), TEXT, "student.model")
    needed = serving(description, "student.model", "fp32")
    assert (needed.weights, needed.cache) == (4 * 300 * 300, None)


def test_weights_are_served_in_the_recipes_precision() -> None:
    config = {**GROUPED, "dtype": "bfloat16"}
    half, full = (
        describe(ArchitectureModel(type="llama", config=kind), LONG, "student.model") for kind in (config, GROUPED)
    )
    assert serving(half, "student.model", "fp32") == serving(full, "student.model", "fp32")
    full_precision, half_precision = (serving(full, "student.model", precision) for precision in ("fp32", "bf16"))
    assert full_precision.cache is not None
    assert (half_precision.precision, half_precision.weights, half_precision.cache) == (
        "bf16",
        full_precision.weights // 2,
        full_precision.cache // 2,
    )
