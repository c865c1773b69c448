"""Which documents are completed, and the words that a page has for what the models wrote."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from understudy.evaluate.completions import DOCUMENTS, TOKENS, beginnings, completed


@given(tokens=st.lists(st.integers(0, 200), max_size=40), length=st.integers(1, 300))
def test_beginnings_and_completions_fit_the_sequence_and_the_document(tokens: list[int], length: int) -> None:
    chosen = beginnings(np.array(tokens, dtype=np.int64), length)
    assert chosen.prompt_length + chosen.completion_length <= length
    assert max(chosen.prompt_length, chosen.completion_length) <= TOKENS
    long = [
        place
        for place, count in enumerate(tokens)
        if chosen.prompt_length and count >= chosen.prompt_length + chosen.completion_length
    ]
    assert chosen.shape == (min(DOCUMENTS, len(long)), chosen.completion_length)
    assert set(chosen.documents) <= set(long)
    assert len(set(chosen.documents)) == len(chosen.documents)
    if len(long) > 1:
        assert (chosen.documents[0], chosen.documents[-1]) == (long[0], long[-1])


END, PADDING, NO_TOKEN = 0, 1, 400


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    """Two documents of 8 bytes, a token each."""
    alphabet = ["<end>", "<pad>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE(vocab={letter: place for place, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<end>", "<pad>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    facts = {"task": "causal-lm", "eos_id": END, "sequence_length": 8}
    (tmp_path / "examples.json").write_text(json.dumps(facts))
    np.save(tmp_path / "test.tokens.npy", np.array(tokenizer.encode("one red <b>cats\x1b").ids))
    np.save(tmp_path / "test.offsets.npy", np.array([0, 8, 16]))
    return tmp_path


def ids(examples: Path, text: str) -> list[int]:
    return list(Tokenizer.from_file(str(examples / "tokenizer.json")).encode(text).ids)


def test_words_stand_beside_those_of_the_data_up_to_the_end_of_the_text(examples: Path) -> None:
    found = completed(
        examples,
        {
            "teacher.completions": np.array([ids(examples, "blue"), ids(examples, "cars")], dtype=np.float64),
            "student.completions": np.array([[*ids(examples, "no"), 0, 5], [0, 5, 5, 5]], dtype=np.float64),
            "control.completions": np.array([[2, np.nan, 3, 3], [2, 2, 2, 2]]),
            "student.nll": np.zeros(2),
        },
    )
    assert [(one.document, one.beginning) for one in found] == [(0, "one"), (1, "<b>c")]
    assert found[0].texts == {"data": "red", "teacher": "blue", "student": "no", "control": "not measured"}
    assert found[1].texts["student"] == "(the text ends)"
    assert found[1].texts["data"].startswith("ats")
    assert found[1].texts["data"].isprintable()


SEEN: list[tuple[list[int | str], str]] = [
    # What a model wrote, as ids and bytes, and what a reader is told.
    (["b", "l", "u", "e"], "blue"),
    (["n", "o", END, "x"], "no"),
    ([END, "x", "x", "x"], "(the text ends)"),
    ([END, END, END, END], "(the text ends)"),
    ([" ", " ", "\n", "\t"], "(nothing that can be seen)"),
    ([" ", "\n", END, "x"], "(nothing that can be seen)"),
    ([PADDING, PADDING, PADDING, PADDING], "<pad><pad><pad><pad>"),
    (["n", PADDING, "o", END], "n<pad>o"),
    ([PADDING, END, "x", "x"], "<pad>"),
    ([NO_TOKEN, NO_TOKEN, NO_TOKEN, NO_TOKEN], "(nothing that can be seen)"),
    (["n", NO_TOKEN, "o", NO_TOKEN], "no"),
]


@pytest.mark.parametrize(("wrote", "told"), SEEN)
def test_a_text_is_said_to_end_where_a_model_ends_it(examples: Path, wrote: list[int | str], told: str) -> None:
    tokens = [each if isinstance(each, int) else ids(examples, each)[0] for each in wrote]
    found = completed(examples, {"student.completions": np.array([tokens, tokens], dtype=np.float64)})
    assert found[0].texts["student"] == told


def test_pictures_are_not_completed(examples: Path) -> None:
    (examples / "examples.json").write_text(json.dumps({"task": "image-classification", "labels": ["a"]}))
    assert completed(examples, {"student.completions": np.zeros((0, 0))}) == []
