"""Which test examples every model continues, and from where."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from understudy.data.prompts import EXAMPLES, TOKENS, of_answers, of_documents, spread


@given(tokens=st.lists(st.integers(0, 200), max_size=40), length=st.integers(1, 300))
def test_beginnings_and_completions_fit_the_sequence_and_the_document(tokens: list[int], length: int) -> None:
    offsets = np.cumsum([0, *tokens])
    chosen = of_documents(offsets, length)
    prompts = set(chosen.ends - chosen.begins)
    prompt = prompts.pop() if prompts else 0
    assert not prompts, "all have one length"
    assert prompt + chosen.tokens <= length
    assert max(prompt, chosen.tokens) <= TOKENS
    least = min(TOKENS, length // 2) + min(TOKENS, length - min(TOKENS, length // 2))
    long = [index for index, count in enumerate(tokens) if length > 1 and count >= least]
    assert chosen.shape == (min(EXAMPLES, len(long)), chosen.tokens)
    assert set(chosen.examples) <= set(long)
    assert len(set(chosen.examples)) == len(chosen.examples)
    assert chosen.begins.tolist() == offsets[chosen.examples].tolist()
    if len(long) > 1:
        assert (chosen.examples[0], chosen.examples[-1]) == (long[0], long[-1])


@given(
    places=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 20)), max_size=20),
    length=st.integers(2, 60),
    examples=st.integers(0, 12),
    tokens=st.integers(1, 30),
)
def test_a_conversation_is_answered_from_its_last_answer_on(
    places: list[tuple[int, int]], length: int, examples: int, tokens: int
) -> None:
    """Each conversation has a prompt of some tokens, and an answer of some; without a prompt it has no answer."""
    begins = np.array([begin for begin, _ in places], dtype=np.int64)
    ends = begins + [size if begin else 0 for begin, size in places]
    offsets = np.concatenate([[0], np.cumsum(ends)])
    every = of_answers(offsets, begins, ends, length, frozenset({3}))
    assert every.examples.tolist() == [index for index, begin in enumerate(begins) if 0 < begin < length]
    chosen = every.limited(examples, tokens)
    assert chosen.stops == frozenset({3})
    assert len(chosen.examples) == min(examples, len(every.examples))
    assert set(chosen.examples) <= set(every.examples)
    for example, begin, end, data_end, most in zip(
        chosen.examples, chosen.begins, chosen.ends, chosen.data_ends, chosen.most, strict=True
    ):
        assert (begin, end, data_end) == tuple(offsets[example] + [0, begins[example], ends[example]])
        assert most == min(tokens, length - begins[example])
    assert chosen.shape == (len(chosen.examples), max(chosen.most, default=0))


@given(st.integers(0, 50), st.integers(0, 60))
def test_examples_are_spread_evenly(candidates: int, count: int) -> None:
    chosen = spread(np.arange(candidates), count)
    assert len(chosen) == min(candidates, count)
    steps = np.diff(chosen)
    assert len(steps) == 0 or steps.max() - steps.min() <= 1
    if len(chosen) > 1:
        assert (chosen[0], chosen[-1]) == (0, candidates - 1)
