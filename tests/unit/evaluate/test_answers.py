"""How many inputs are predicted at a time; what is kept of a model is tested in test_measure.py."""

from hypothesis import given
from hypothesis import strategies as st

from understudy.evaluate.answers import MOST_LOGITS, batch_size

IMAGES = {"task": "image-classification", "labels": ["a", "b"]}


@given(st.integers(1, 512), st.integers(2, 10**5), st.integers(1, 10**6))
def test_logits_of_a_batch_of_text_have_room(asked: int, length: int, vocabulary: int) -> None:
    size = batch_size(asked, {"task": "causal-lm", "sequence_length": length, "vocab_size": vocabulary})
    assert 1 <= size <= asked
    assert size == 1 or size * length * vocabulary <= MOST_LOGITS
    assert size == asked or (size + 1) * length * vocabulary > MOST_LOGITS


def test_images_and_small_vocabularies_have_the_batch_that_is_asked_for() -> None:
    assert batch_size(64, IMAGES) == 64
    assert batch_size(64, {"task": "causal-lm", "sequence_length": 128, "vocab_size": 4096}) == 64
    assert batch_size(64, {"task": "causal-lm", "sequence_length": 2048, "vocab_size": 128_256}) == 1
