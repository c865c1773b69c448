"""Which test examples every model continues, and from where."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from understudy.data.prompts import EXAMPLES, TOKENS, of_answers, of_documents


@given(tokens=st.lists(st.integers(0, 200), max_size=40), length=st.integers(1, 300))
def test_beginnings_and_completions_fit_the_sequence_and_the_document(tokens: list[int], length: int) -> None:
    offsets = np.cumsum([0, *tokens])
    chosen = of_documents(offsets, length)
    prompts = set(chosen.ends - chosen.begins)
    prompt = prompts.pop() if prompts else 0
    assert not prompts, "all have one length"
    assert prompt + chosen.tokens <= length
    assert max(prompt, chosen.tokens) <= TOKENS
    least = min(TOKENS, length // 2) + chosen.tokens
    long = [index for index, count in enumerate(tokens) if length > 1 and count >= least]
    assert chosen.shape == (min(EXAMPLES, len(long)), chosen.tokens)
    assert set(chosen.examples) <= set(long)
    assert len(set(chosen.examples)) == len(chosen.examples)
    assert chosen.begins.tolist() == offsets[chosen.examples].tolist()
    if len(long) > 1:
        assert (chosen.examples[0], chosen.examples[-1]) == (long[0], long[-1])


@given(
    masks=st.lists(st.lists(st.booleans(), max_size=30).map(lambda mask: [False, *mask] if mask else []), max_size=12),
    length=st.integers(2, 60),
)
def test_a_prompt_ends_where_the_last_answer_of_its_conversation_begins(masks: list[list[bool]], length: int) -> None:
    offsets = np.cumsum([0, *map(len, masks)])
    chosen = of_answers(offsets, np.array([flag for mask in masks for flag in mask], dtype=bool), length)
    expected = {}
    for index, mask in enumerate(masks):
        begins = [place for place in range(1, len(mask)) if mask[place] and not mask[place - 1]]
        if begins and begins[-1] > 1 and begins[-1] + chosen.tokens <= length:
            expected[index] = begins[-1]
    assert len(chosen.examples) == min(EXAMPLES, len(expected))
    for example, begin, end in zip(chosen.examples, chosen.begins, chosen.ends, strict=True):
        assert begin == offsets[example]
        assert end - begin == expected[example]
