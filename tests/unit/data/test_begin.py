"""A tokenizer that begins a text with a token: the inputs of models in training, evaluation and validation."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import processors

from understudy.data import tokenizer as tokenizers
from understudy.data.loader import IGNORED, open_split
from understudy.data.measured import Documents
from understudy.data.packing import write_packed
from understudy.recipe.data import Tokenizer

BOS, EOS, LENGTH = 1, 0, 5
documents = st.lists(st.lists(st.integers(2, 9), max_size=12), min_size=1, max_size=8)


def written(folder: Path, texts: list[list[int]], **facts: Any) -> Path:
    ended = [[*text, EOS] for text in texts]
    np.save(folder / "train.tokens.npy", np.concatenate(ended).astype(np.uint16))
    np.save(folder / "train.offsets.npy", np.cumsum([0, *map(len, ended)]))
    np.save(folder / "train.bytes.npy", np.array([4 * len(text) for text in texts]))
    write_packed(folder, "train", LENGTH)
    about = {"task": "causal-lm", "vocab_size": 10, "eos_id": EOS, "sequence_length": LENGTH, **facts}
    (folder / "examples.json").write_text(json.dumps(about))
    return folder


@given(documents)
def test_windows_are_those_of_documents_that_begin_with_it(
    tmp_path_factory: pytest.TempPathFactory, texts: list[list[int]]
) -> None:
    split = open_split(written(tmp_path_factory.mktemp("begun"), texts, bos_id=BOS), "train")
    stream = [token for text in texts for token in (BOS, *text, EOS)]
    inputs, labels = split.batch(np.arange(len(split)))
    count = len(stream) - 1
    assert inputs.flatten()[:count].tolist() == stream[:-1]
    assert labels.flatten()[:count].tolist() == [IGNORED if token == BOS else token for token in stream[1:]]
    assert (labels.flatten()[count:] == IGNORED).all()
    assert len(split) == -(-count // LENGTH)
    for index in range(len(split)):
        assert split.targets(np.array([index])) == int((labels[index] != IGNORED).sum())
    assert split.targets(np.arange(len(split))) == sum(len(text) + 1 for text in texts)


@given(documents)
def test_pieces_and_measured_windows_begin_with_it_where_a_document_does(
    tmp_path_factory: pytest.TempPathFactory, texts: list[list[int]]
) -> None:
    folder = written(tmp_path_factory.mktemp("packed"), texts, bos_id=BOS, packing="documents")
    expected = sorted(
        [tuple(text[at - 1] if at else BOS for at in range(start, min(start + LENGTH, len(text))))
         for text in ([*text, EOS] for text in texts) for start in range(0, len(text), LENGTH)]
    )  # fmt: skip
    split = open_split(folder, "train")
    inputs, labels = split.batch(np.arange(len(split)))
    positions = split.positions(np.arange(len(split)))
    assert positions is not None
    pieces: list[tuple[int, ...]] = []
    for row in range(len(split)):
        real = labels[row] != IGNORED
        starts = [at for at in range(LENGTH) if positions[row, at] == 0 and real[at]]
        ends = [*starts[1:], int(real.sum())]
        pieces += [tuple(inputs[row, start:end].tolist()) for start, end in zip(starts, ends, strict=True)]
    assert sorted(pieces) == expected
    windows = [
        tuple(batch.inputs[row][batch.examples[row] >= 0].tolist())
        for batch in Documents(folder, LENGTH, BOS, LENGTH, "train").batches(3)
        for row in range(len(batch.inputs))
    ]
    assert sorted(windows) == expected


@pytest.mark.parametrize("stride", [1, 3, LENGTH])
@given(documents)
def test_what_is_counted_does_not_depend_on_it(
    tmp_path_factory: pytest.TempPathFactory, stride: int, texts: list[list[int]]
) -> None:
    folder = written(tmp_path_factory.mktemp("counted"), texts)
    begun, plain = (list(Documents(folder, LENGTH, first, stride, "train").batches(3)) for first in (BOS, EOS))
    for with_begin, without_begin in zip(begun, plain, strict=True):
        assert (with_begin.examples == without_begin.examples).all()
        assert (with_begin.targets == without_begin.targets).all()
        assert (np.where(with_begin.inputs == BOS, EOS, with_begin.inputs) == without_begin.inputs).all()


@pytest.mark.parametrize("adds", ["post-processor", "setting", "setting of an object", "nothing", "setting is off"])
def test_a_tokenizer_says_whether_it_begins_a_text(tmp_path: Path, adds: str) -> None:
    tokenizer = tokenizers.train(iter(["some text"] * 4), 260)
    tokenizer.add_special_tokens(["<s>", "</s>"])
    bos = tokenizer.token_to_id("<s>")
    if adds == "post-processor":
        template = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", bos)])
        tokenizer.post_processor = template
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    named = {"content": "<s>"} if adds == "setting of an object" else "<s>"
    config = {"eos_token": "</s>", "bos_token": named}
    if adds.startswith("setting"):
        config["add_bos_token"] = adds != "setting is off"
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    _, end, first = tokenizers.pretrained(Tokenizer(pretrained=str(tmp_path)))
    assert end == tokenizer.token_to_id("</s>")
    assert first == (None if adds in ("nothing", "setting is off") else bos)
