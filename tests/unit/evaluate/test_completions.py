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
    assert chosen.given + chosen.completed <= length
    assert max(chosen.given, chosen.completed) <= TOKENS
    long = [place for place, count in enumerate(tokens) if chosen.given and count >= chosen.given + chosen.completed]
    assert chosen.shape == (min(DOCUMENTS, len(long)), chosen.completed)
    assert set(chosen.documents) <= set(long)
    assert len(set(chosen.documents)) == len(chosen.documents)
    if len(long) > 1:
        assert (chosen.documents[0], chosen.documents[-1]) == (long[0], long[-1])


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    """Two documents of 8 bytes, a token each; 0 ends a text."""
    alphabet = ["<end>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE(vocab={letter: place for place, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    facts = {"task": "causal-lm", "eos_id": 0, "sequence_length": 8}
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
            "control.completions": np.array([[1, np.nan, 2, 2], [1, 1, 1, 1]]),
            "student.nll": np.zeros(2),
        },
    )
    assert [(one.document, one.beginning) for one in found] == [(0, "one"), (1, "<b>c")]
    assert found[0].by == {"data": "red", "teacher": "blue", "student": "no", "control": "not measured"}
    assert found[1].by["student"] == "(the text ends)"
    assert found[1].by["data"].startswith("ats")
    assert found[1].by["data"].isprintable()


def test_pictures_are_not_completed(examples: Path) -> None:
    (examples / "examples.json").write_text(json.dumps({"task": "image-classification", "labels": ["a"]}))
    assert completed(examples, {"student.completions": np.zeros((0, 0))}) == []
