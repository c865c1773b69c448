"""Batches of greedy continuations against transformers' generate() of one prompt after the other."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM

from understudy.data.prompts import Integers, Prompts
from understudy.evaluate.generation import generated, step_count
from understudy.evaluate.shares import WHOLE
from understudy.models.outputs import Outputs
from understudy.models.tasks import TextModel

VOCABULARY, LENGTH, END, STOP = 50, 24, 7, 30
CPU = torch.device("cpu")
SMALL: dict[str, Any] = {"vocab_size": VOCABULARY, "max_position_embeddings": LENGTH}
SIZES: dict[str, Any] = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}
KINDS: dict[str, dict[str, Any]] = {
    "llama": SIZES,
    "mistral": SIZES | {"sliding_window": 6},
    "qwen3": SIZES | {"head_dim": 8},
    "gpt2": {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": LENGTH},
    "gpt_neox": {key: value for key, value in SIZES.items() if key != "num_key_value_heads"},
}


def network(kind: str) -> nn.Module:
    torch.manual_seed(3)
    config = AutoConfig.for_model(kind, **SMALL, **KINDS[kind])
    net = AutoModelForCausalLM.from_config(config).eval()
    for parameter in net.parameters():  # as initialised, a model writes one token over and over
        nn.init.normal_(parameter, std=0.5)
    return net


def prompts(lengths: list[int], most: int, stops: frozenset[int] = frozenset({END})) -> tuple[list[Integers], Prompts]:
    generator = np.random.default_rng(0)
    inputs = [generator.integers(8, VOCABULARY, length) for length in lengths]
    ends = np.cumsum(lengths)
    limits = np.minimum(most, LENGTH - np.array(lengths))
    return inputs, Prompts(np.arange(len(lengths)), ends - lengths, ends, ends, limits, stops)


def continued(module: nn.Module, lengths: list[int], most: int, size: int, **given: Any) -> np.ndarray:
    inputs, chosen = prompts(lengths, most, **given)
    ticks: list[int] = []
    with torch.inference_mode():
        result = generated(module, inputs, chosen, size, CPU, ticks.append, WHOLE)
    assert sum(ticks) == step_count(chosen, size)
    return result


def alone(net: Any, tokens: Integers, most: int) -> list[int]:
    """What transformers generates after one prompt, up to the end token."""
    inputs = torch.from_numpy(tokens)[None]
    with torch.inference_mode():
        ids = net.generate(inputs, max_new_tokens=most, do_sample=False, eos_token_id=END, pad_token_id=END)
    return list(ids[0, len(tokens) :].tolist())


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_of_prompts_of_all_lengths_goes_on_as_each_alone(kind: str) -> None:
    net, lengths = network(kind), [1, 14, 3, 23, 9, 9, 2]
    results = continued(TextModel(net, VOCABULARY), lengths, 12, size=4)
    inputs, chosen = prompts(lengths, 12)
    for tokens, row, most in zip(inputs, results, chosen.most, strict=True):
        expected = alone(net, tokens, int(most))
        assert row[: len(expected)].tolist() == expected
        assert set(row[len(expected) :]) <= {END}


class Counter(nn.Module):
    """A model of no library: each token is followed by the next one, and by NaN logits after 40."""

    def forward(self, tokens: Tensor) -> Outputs:
        logits = nn.functional.one_hot((tokens + 1) % VOCABULARY, VOCABULARY).float()
        return Outputs(logits.masked_fill((tokens == 40)[..., None], torch.nan))


@settings(deadline=None, max_examples=25)
@given(
    lengths=st.lists(st.integers(1, LENGTH), min_size=1, max_size=7),
    most=st.integers(1, 12),
    size=st.integers(1, 4),
)
def test_another_model_goes_on_in_any_batch(lengths: list[int], most: int, size: int) -> None:
    results = continued(Counter(), lengths, most, size, stops=frozenset({STOP}))
    inputs, chosen = prompts(lengths, most)
    expected = [
        counted(int(tokens[-1]), int(limit), chosen.tokens) for tokens, limit in zip(inputs, chosen.most, strict=True)
    ]
    np.testing.assert_array_equal(results, np.array(expected).reshape(chosen.shape))


def counted(token: int, limit: int, width: int) -> list[float]:
    """What Counter writes after a token."""
    row: list[float] = []
    while len(row) < width:
        if np.isnan(row).any() or (40 in (token, *row) and len(row) < limit and STOP not in row):
            row.append(np.nan)
        elif len(row) >= limit or STOP in row:
            row.append(STOP)
        else:
            row.append((token + 1 + len(row)) % VOCABULARY)
    return row


def test_tokens_after_logits_that_are_nan_are_nan() -> None:
    inputs, chosen = [np.array([38]), np.array([45])], prompts([1, 1], 5)[1]
    with torch.inference_mode():
        rows = generated(Counter(), inputs, chosen, 2, CPU, lambda _: None, WHOLE)
    np.testing.assert_array_equal(rows, [[39, 40, np.nan, np.nan, np.nan], [46, 47, 48, 49, 0]])


def test_no_prompts_take_no_steps() -> None:
    assert continued(Counter(), [], 5, size=2).shape == (0, 0)
