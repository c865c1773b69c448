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
from understudy.evaluate.metrics import ANSWER, FloatArray
from understudy.evaluate.task import evaluated_task
from understudy.models.facts import Facts, read_facts

MOST = 12
"""Maximum number of examples shown."""
DIGITS = 12
"""Shown digits of a record's digest."""
LETTERS = 400
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
    """The beginning of the SHA-256 of the record's content, for a record from a file the file's."""
    picture: str = ""
    """A PNG in base64."""
    text: str = ""
    label: str = ""
    student: str = ""
    teacher: str = ""
    prediction: str = ""
    """The student's label; empty if the task's answers are not collected."""


def worst(examples: Path, records: Path, per_example: Mapping[str, Any]) -> list[Example]:
    """Wrong answers whose label is least likely to the student; without labels, texts on which it is farthest behind.

    Args:
        examples: the folder of an `examples` object.
        records: the folder of the `records` object that they were made from.
        per_example: the arrays of per_example.npz.
    """
    facts = read_facts(examples)
    if "student.nll" not in per_example or "teacher.nll" not in per_example:
        return []
    examples_shown = (_wrong if evaluated_task(facts["task"]).LABELLED else _largest_gaps)(examples, facts, per_example)
    numbers = sorted(example.number for example in examples_shown)
    ids = dict(zip(numbers, ids_at(records, "test", numbers), strict=True))
    return [replace(example, record=ids[example.number][:DIGITS]) for example in examples_shown]


def _wrong(examples: Path, facts: Facts, per_example: Mapping[str, Any]) -> list[Example]:
    """The examples with a wrong answer of the student whose label is least likely to it."""
    truth = evaluated_task(facts["task"]).targets(examples, "test")
    student, teacher, labels = per_example["student.nll"], per_example["teacher.nll"], facts["labels"]
    answers = per_example.get(f"student.{ANSWER}")
    return [
        replace(
            _example(examples, facts, number),
            label=_shortened(str(labels[int(truth[number])])),
            prediction="" if answers is None else _shortened(str(labels[int(answers[number])])),
            student=_chance(float(student[number])),
            teacher=_chance(float(teacher[number])),
        )
        for number in _first(student, np.flatnonzero(per_example["student.correct"] < 1))
    ]


def _largest_gaps(examples: Path, facts: Facts, per_example: Mapping[str, Any]) -> list[Example]:
    """The texts on which the student is farthest behind its teacher, per byte."""
    length = per_example["weights.bytes"]
    student, teacher = per_example["student.nll"], per_example["teacher.nll"]
    with np.errstate(invalid="ignore"):  # if both losses are infinite, neither model is behind
        gaps = (student - teacher) / np.maximum(length, 1)
    return [
        replace(
            _example(examples, facts, number),
            student=_bits(float(student[number] / length[number])),
            teacher=_bits(float(teacher[number] / length[number])),
        )
        for number in _first(gaps, np.flatnonzero((gaps > 0) & (length > 0)))
    ]


def _example(examples: Path, facts: Facts, number: int) -> Example:
    content = evaluated_task(facts["task"]).shown(examples, facts, number)
    if isinstance(content, str):
        return Example(number, text=_shortened(content))
    return Example(number, picture=_png(content))


def _first(values: FloatArray, candidates: Any) -> list[int]:
    """The examples with the largest values, in descending order; those that were not measured are left out."""
    measured = candidates[~np.isnan(values[candidates])]  # an infinite loss is the worst of all
    return [int(number) for number in measured[np.argsort(-values[measured], kind="stable")][:MOST]]


def _png(image: Any) -> str:
    """A PNG, in base64, of an image (channels, side, side): enlarged by whole pixels, or every n-th of them."""
    from PIL import Image

    pixels = np.asarray(image)
    side = pixels.shape[-1]
    pixels = pixels[:, :: -(-side // LARGEST), :: -(-side // LARGEST)]
    scale = -(-SIDE // pixels.shape[-1])
    pixels = pixels.repeat(scale, axis=1).repeat(scale, axis=2)
    picture = Image.fromarray(pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0)))
    buffer = io.BytesIO()
    picture.save(buffer, format="PNG")
    return base64.b64encode(buffer.getvalue()).decode()


def _shortened(text: str) -> str:
    printable = printable_lines(text)
    return printable if len(printable) <= LETTERS else f"{printable[:LETTERS]} …"


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
