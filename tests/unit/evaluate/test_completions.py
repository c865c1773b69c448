"""Which documents are completed, and a page's text of completions."""

import json
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from understudy.evaluate.completions import completed
from understudy.recipe import Generation

END, PADDING, NO_TOKEN = 0, 1, 400


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    """Two documents of 8 bytes, a token each."""
    alphabet = ["<end>", "<pad>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE(vocab={letter: index for index, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<end>", "<pad>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    facts = {"task": "causal-lm", "eos_id": END, "sequence_length": 8}
    (tmp_path / "examples.json").write_text(json.dumps(facts))
    np.save(tmp_path / "test.tokens.npy", np.array(tokenizer.encode("one red <b>cats\x1b").ids))
    np.save(tmp_path / "test.offsets.npy", np.array([0, 8, 16]))
    np.save(tmp_path / "test.bytes.npy", np.array([8, 8]))
    return tmp_path


def ids(examples: Path, text: str) -> list[int]:
    return list(Tokenizer.from_file(str(examples / "tokenizer.json")).encode(text).ids)


def test_words_stand_beside_those_of_the_data_up_to_the_end_of_the_text(examples: Path) -> None:
    completions = completed(
        examples,
        {
            "teacher.completions": np.array([ids(examples, "blue"), ids(examples, "cars")], dtype=np.float64),
            "student.completions": np.array([[*ids(examples, "no"), 0, 5], [0, 5, 5, 5]], dtype=np.float64),
            "control.completions": np.array([[2, np.nan, 3, 3], [2, 2, 2, 2]]),
            "student.nll": np.zeros(2),
        },
        Generation(),
    )
    assert [(completion.document, completion.beginning) for completion in completions] == [(0, "one"), (1, "<b>c")]
    assert completions[0].texts == {"data": "red", "teacher": "blue", "student": "no", "control": "not measured"}
    assert completions[1].texts["student"] == "(the text ends)"
    assert completions[1].texts["data"].startswith("ats")
    assert completions[1].texts["data"].isprintable()


SEEN: list[tuple[list[int | str], str]] = [
    # A model's answer, as ids and bytes, and the text on the page.
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


@pytest.mark.parametrize(("wrote", "expected"), SEEN)
def test_a_text_ends_where_a_model_ends_it(examples: Path, wrote: list[int | str], expected: str) -> None:
    tokens = [token if isinstance(token, int) else ids(examples, token)[0] for token in wrote]
    completions = completed(
        examples, {"student.completions": np.array([tokens, tokens], dtype=np.float64)}, Generation()
    )
    assert completions[0].texts["student"] == expected


def test_pictures_are_not_completed(examples: Path) -> None:
    (examples / "examples.json").write_text(json.dumps({"task": "image-classification", "labels": ["a"]}))
    assert completed(examples, {"student.completions": np.zeros((0, 0))}, Generation()) == []
