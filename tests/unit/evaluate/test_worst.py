"""The examples that the student does worst on, against what numpy and the arrays themselves say."""

import base64
import hashlib
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from understudy.data.raw import Split
from understudy.data.records import FILE, Record, write
from understudy.evaluate.worst import LARGEST, LETTERS, MOST, SIDE, worst
from understudy.tasks.causal_lm import SHOWN

FIT = settings(max_examples=30, deadline=None)


def recorded(folder: Path, count: int) -> list[str]:
    """Writes records of which every second is of the test split; returns the beginnings of the latters' digests."""
    digests = [hashlib.sha256(b"%d" % number).hexdigest() for number in range(2 * count)]
    splits: list[Split] = ["train", "test"]
    write(folder / FILE, (Record(digest, splits[n % 2], None, b"%d" % n) for n, digest in enumerate(digests)))
    return [digest[:12] for digest in digests[1::2]]


def pictures(folder: Path, count: int, side: int, channels: int) -> None:
    drawn = np.random.default_rng(count)
    np.save(folder / "test.images.npy", drawn.integers(0, 256, (count, channels, side, side), dtype=np.uint8))
    np.save(folder / "test.labels.npy", np.arange(count) % 3)
    facts = {"task": "image-classification", "labels": ["cat", "dog", "<b>\u202edog"]}
    (folder / "examples.json").write_text(json.dumps(facts))


@FIT
@given(
    nll=st.lists(st.floats(0, 9) | st.sampled_from([float("nan"), float("inf")]), min_size=1, max_size=40),
    side=st.sampled_from([1, 8, 28, 97, 300]),
    channels=st.sampled_from([1, 3]),
)
def test_pictures_are_the_wrong_ones_with_the_least_likely_labels(
    nll: list[float], side: int, channels: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("examples")
    pictures(folder, len(nll), side, channels)
    student = np.array(nll)
    correct = (np.arange(len(nll)) % 4 == 0).astype(float)
    digests = recorded(folder, len(nll))
    answers = (np.arange(len(nll)) + 1) % 3.0
    arrays = {"student.nll": student, "teacher.nll": student / 2, "student.correct": correct}
    examples = worst(folder, folder, arrays | {"student.answer": answers})
    assert [replace(example, prediction="") for example in examples] == worst(folder, folder, arrays)
    wrong = [number for number in range(len(nll)) if not correct[number] and not np.isnan(nll[number])]
    assert [example.number for example in examples] == sorted(wrong, key=lambda number: -nll[number])[:MOST]
    images = np.load(folder / "test.images.npy")
    assert [example.record for example in examples] == [digests[example.number] for example in examples]
    for example in examples:
        shown = Image.open(io.BytesIO(base64.b64decode(example.picture)))
        assert SIDE <= shown.width <= max(2 * SIDE, LARGEST)
        assert np.array_equal(np.atleast_1d(shown.getpixel((0, 0))), images[example.number, :, 0, 0])
        assert example.label.isprintable()
        names = ["cat", "dog", "<b>\\u202edog"]
        assert example.label == names[example.number % 3]
        assert example.prediction == names[(example.number + 1) % 3]


@FIT
@hypothesis.example(documents=["def f():\n    return 1\n\nf()"] * 6)
@given(documents=st.lists(st.text(max_size=900), min_size=1, max_size=20))
def test_texts_are_those_farthest_behind_the_teacher_and_only_their_beginnings(
    documents: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("examples")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: index for index, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    written = [document.encode("utf-8", "replace").decode() for document in documents]
    tokens = [tokenizer.encode(document).ids for document in written]
    np.save(folder / "test.tokens.npy", np.array([token for ids in tokens for token in ids], dtype=np.int64))
    np.save(folder / "test.offsets.npy", np.cumsum([0, *map(len, tokens)]))
    (folder / "examples.json").write_text(json.dumps({"task": "causal-lm"}))
    lengths = np.array([len(document.encode()) for document in written], dtype=float)
    drawn = np.random.default_rng(len(documents)).random((2, len(documents))) * (lengths + 1)
    drawn[0, ::5] = np.inf  # a student that thinks a token impossible
    drawn[1, ::10] = np.inf
    arrays: dict[str, Any] = {"student.nll": drawn[0], "teacher.nll": drawn[1], "weights.bytes": lengths}
    digests = recorded(folder, len(written))
    examples = worst(folder, folder, arrays)
    assert [example.record for example in examples] == [digests[example.number] for example in examples]
    comparable = [n for n in range(len(written)) if lengths[n] and np.isfinite(drawn[1][n])]
    behind = {n: (drawn[0][n] - drawn[1][n]) / lengths[n] for n in comparable}
    expected = sorted((n for n in behind if behind[n] > 0), key=lambda n: -behind[n])[:MOST]
    assert [example.number for example in examples] == expected
    for example in examples:
        assert example.text.replace("\n", "").isprintable()
        assert len(example.text) <= LETTERS + 2
        full_text = written[example.number]
        plain = full_text.isascii() and all(
            line.isprintable() and line == line.rstrip() for line in full_text.split("\n")
        )
        if (
            plain
            and full_text == full_text.strip("\n")
            and "\n\n\n" not in full_text
            and len(full_text) < min(SHOWN, LETTERS)
        ):
            assert example.text == full_text, "line for line"
        student = f"{drawn[0][example.number] / lengths[example.number] / np.log(2):.2f} bits"
        assert example.student.startswith(student.replace("inf", "infinitely many"))


def test_an_unmeasured_example_is_not_shown(tmp_path: Path) -> None:
    pictures(tmp_path, 3, 8, 1)
    assert worst(tmp_path, tmp_path, {"teacher.nll": np.ones(3)}) == []
