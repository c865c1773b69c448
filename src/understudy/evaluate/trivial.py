"""The trivial predictor, which ignores the example. A student has to beat it.

It predicts the shares of the targets in the training split: of the labels for every image, and of the tokens (a unigram
model) for every token of a text. One is added to every count (Laplace 1812), so that targets not seen in training are
possible.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.evaluate.answers import by_role
from understudy.evaluate.metrics import FloatArray, collects_answers
from understudy.evaluate.scoring import Scores
from understudy.evaluate.task import evaluated_task
from understudy.models.facts import output_size, read_facts

CHUNK = 2**22  # tokens in a chunk


def trivial_results(examples: Path) -> dict[str, FloatArray]:
    """The trivial predictor's per-example results on the test split, under the names of a model named `trivial`.

    Args:
        examples: the folder of an `examples` object.
    """
    facts = read_facts(examples)
    task, classes = evaluated_task(facts["task"]), output_size(facts)
    train, test = (task.targets(examples, split) for split in ("train", "test"))
    predictions, _ = task.lengths(examples)
    counts = np.ones(classes)
    for _, chunk in _chunks(train):
        counts += np.bincount(chunk, minlength=classes)
    scores = _scores(counts / counts.sum(), test, np.cumsum(predictions), answers=collects_answers(facts["task"]))
    return by_role("trivial", scores.arrays())


def _scores(shares: FloatArray, targets: NDArray[Any], ends: NDArray[Any], *, answers: bool) -> Scores:
    """Sums by example; each example ends at one of `ends`."""
    scores, likeliest = Scores(len(ends), answers=answers), int(shares.argmax())
    for start, chunk in _chunks(targets):
        examples = np.searchsorted(ends, np.arange(start, start + len(chunk)), side="right")
        confidence = np.full(len(chunk), shares[likeliest])
        correct = (chunk == likeliest).astype(np.float64)
        scores.add(examples, -np.log(shares[chunk]), correct, confidence, np.full(len(chunk), float(likeliest)))
    return scores


def _chunks(array: NDArray[Any]) -> Iterator[tuple[int, NDArray[Any]]]:
    for start in range(0, len(array), CHUNK):
        yield start, np.asarray(array[start : start + CHUNK])
