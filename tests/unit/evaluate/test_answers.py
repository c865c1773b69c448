"""How many inputs are predicted at a time; test_measure.py tests the recorded results."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from understudy.data.measured import Documents
from understudy.evaluate.answers import MOST_LOGITS, batch_size, results, step_count
from understudy.models.outputs import Outputs
from understudy.recipe import Generation

IMAGES = {"task": "image-classification", "labels": ["a", "b"]}


@given(st.integers(1, 512), st.integers(2, 10**5), st.integers(1, 10**6))
def test_logits_of_a_batch_of_text_have_room(requested: int, length: int, vocabulary: int) -> None:
    size = batch_size(requested, {"task": "causal-lm", "sequence_length": length, "vocab_size": vocabulary})
    assert 1 <= size <= requested
    assert size == 1 or size * length * vocabulary <= MOST_LOGITS
    assert size == requested or (size + 1) * length * vocabulary > MOST_LOGITS


def test_images_and_small_vocabularies_have_the_batch_that_is_asked_for() -> None:
    assert batch_size(64, IMAGES) == 64
    assert batch_size(64, {"task": "causal-lm", "sequence_length": 128, "vocab_size": 4096}) == 64
    assert batch_size(64, {"task": "causal-lm", "sequence_length": 2048, "vocab_size": 128_256}) == 1


@settings(deadline=None)
@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=12),
    length=st.integers(1, 20),
    size=st.integers(1, 5),
)
def test_a_model_is_not_asked_twice_between_two_reports(lengths: list[int], length: int, size: int) -> None:
    """A rank that reports nothing for a while is taken for one that hangs, and hears no wish to stop."""
    batches: list[int] = [0]

    class Model(nn.Module):
        def forward(self, tokens: Tensor) -> Outputs:
            batches[-1] += 1
            return Outputs(torch.zeros(*tokens.shape, 5))

    with TemporaryDirectory() as folder:
        np.save(f"{folder}/test.tokens.npy", np.arange(sum(lengths)) % 5)
        np.save(f"{folder}/test.offsets.npy", np.cumsum([0, *lengths]))
        np.save(f"{folder}/test.bytes.npy", np.array(lengths))
        split = Documents(Path(folder), length, 0, length)
        done: list[int] = []

        def tick(steps: int) -> None:
            done.append(steps)
            batches.append(0)

        results(Model(), split, size, torch.device("cpu"), 0, tick, limits=Generation())
        assert batches == [1] * len(done) + [0]
        assert sum(done) == step_count(split, size, Generation())
