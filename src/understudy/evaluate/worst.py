"""The student's worst test examples, for a reader: a few images, or the beginnings of a few texts.

They are read from the examples, as the models saw them: no image is decoded again, and of a text only the shown part
is read. The data is untrusted, so the page escapes it, and nothing here is markup.
"""

import base64
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from understudy.data.records import ids_at
from understudy.errors import printable_lines
from understudy.evaluate.metrics import FloatArray
from understudy.store.files import read_json

MOST = 12
"""Maximum number of examples shown."""
DIGITS = 12
"""Shown digits of a record's digest."""
TOKENS, LETTERS = 120, 400
"""Maximum length of a text."""
SIDE = 96
"""Minimum pixels of an image on the page; the maximum is LARGEST."""
LARGEST = 256


@dataclass(frozen=True)
class Example:
    """A test example, with the models' predictions in words."""

    number: int
    """Index in the test split, from 0."""
    record: str = ""
    """The beginning of the SHA-256 of the record's content, which is that of its file, if it has one."""
    picture: str = ""
    """A PNG in base64."""
    text: str = ""
    label: str = ""
    student: str = ""
    teacher: str = ""


def worst(examples: Path, records: Path, per_example: Mapping[str, Any]) -> list[Example]:
    """Images whose label is least likely to the student; texts on which it is farthest behind its teacher.

    Args:
        examples: the folder of an `examples` object.
        records: the folder of the `records` object that they were made from.
        per_example: the arrays of per_example.npz.
    """
    facts = read_json(examples / "examples.json") or {}
    if "student.nll" not in per_example or "teacher.nll" not in per_example:
        return []
    if facts["task"] == "causal-lm":
        found = _texts(examples, per_example)
    else:
        found = _pictures(examples, per_example, [str(label) for label in facts["labels"]])
    places = sorted(example.number for example in found)
    ids = dict(zip(places, ids_at(records, "test", places), strict=True))
    return [replace(example, record=ids[example.number][:DIGITS]) for example in found]


def _pictures(examples: Path, per_example: Mapping[str, Any], labels: list[str]) -> list[Example]:
    images = np.load(examples / "test.images.npy", mmap_mode="r")
    truth = np.load(examples / "test.labels.npy", mmap_mode="r")
    student, teacher = per_example["student.nll"], per_example["teacher.nll"]
    wrong = np.flatnonzero(per_example["student.correct"] < 1)
    return [
        Example(
            number=number,
            picture=_png(images[number]),
            label=_shortened(labels[int(truth[number])]),
            student=_chance(float(student[number])),
            teacher=_chance(float(teacher[number])),
        )
        for number in _first(student, wrong)
    ]


def _texts(examples: Path, per_example: Mapping[str, Any]) -> list[Example]:
    from tokenizers import Tokenizer

    tokens = np.load(examples / "test.tokens.npy", mmap_mode="r")
    offsets = np.load(examples / "test.offsets.npy", mmap_mode="r")
    length = per_example["weights.bytes"]
    student, teacher = per_example["student.nll"], per_example["teacher.nll"]
    tokenizer = Tokenizer.from_file(str(examples / "tokenizer.json"))
    with np.errstate(invalid="ignore"):  # where both are infinite neither is behind
        behind = (student - teacher) / np.maximum(length, 1)
    chosen = _first(behind, np.flatnonzero((behind > 0) & (length > 0)))
    return [
        Example(
            number=number,
            text=_shortened(tokenizer.decode(_begin(tokens, offsets, number))),
            student=_bits(float(student[number] / length[number])),
            teacher=_bits(float(teacher[number] / length[number])),
        )
        for number in chosen
    ]


def _begin(tokens: Any, offsets: Any, number: int) -> list[int]:
    start, end = int(offsets[number]), int(offsets[number + 1])
    return [int(token) for token in tokens[start : min(end, start + TOKENS)]]


def _first(by: FloatArray, among: Any) -> list[int]:
    """The examples with the largest values, in descending order; those that were not measured are left out."""
    measured = among[~np.isnan(by[among])]  # an infinite loss is the worst of all
    return [int(number) for number in measured[np.argsort(-by[measured], kind="stable")][:MOST]]


def _png(image: Any) -> str:
    """A PNG, in base64, of an image (channels, side, side): enlarged by whole pixels, or every n-th of them."""
    from PIL import Image

    pixels = np.asarray(image)
    side = pixels.shape[-1]
    pixels = pixels[:, :: -(-side // LARGEST), :: -(-side // LARGEST)]
    times = -(-SIDE // pixels.shape[-1])
    pixels = pixels.repeat(times, axis=1).repeat(times, axis=2)
    picture = Image.fromarray(pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0)))
    buffer = io.BytesIO()
    picture.save(buffer, format="PNG")
    return base64.b64encode(buffer.getvalue()).decode()


def _shortened(text: str) -> str:
    shown = printable_lines(text)
    return shown if len(shown) <= LETTERS else f"{shown[:LETTERS]} …"


def _chance(nll: float) -> str:
    """The probability of the right answer, in words."""
    if math.isnan(nll):
        return "not measured"
    share = 100 * math.exp(-max(nll, 0.0))
    return f"{share:.0f} %" if share >= 1 else "below 1 %"


def _bits(nats: float) -> str:
    if math.isnan(nats):
        return "not measured"
    return f"{nats / math.log(2):.2f} bits per byte" if math.isfinite(nats) else "infinitely many bits per byte"
