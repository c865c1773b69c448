"""Image records -> arrays: pixels of one shape, and label indices, a file of each per split."""

import math
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from understudy.data.images import pixels
from understudy.data.npy import NpyFile
from understudy.data.raw import Split
from understudy.data.records import Content
from understudy.models.facts import read_facts
from understudy.recipe.data import Image

GREY_LEVEL = 1 / 255
Histogram = NDArray[np.int64]
"""Counts of each grey level, (channels, 256)."""


def write_images(
    records: Iterable[Content], labels: Sequence[str], shape: Image, splits: Sequence[Split], folder: Path
) -> Histogram:
    """Write SPLIT.images.npy, uint8 (N, channels, size, size), and SPLIT.labels.npy, int64 (N,), in the records' order.

    Args:
        records: the records of these splits only.
        labels: all labels of the data, in their order.
        shape: the shape of the written images.
        splits: the splits to write.
        folder: output folder.

    Returns:
        The grey levels of the training split; zeros if that is not among the splits.
    """
    index = {label: number for number, label in enumerate(labels)}
    row = (shape.channels, shape.size, shape.size)
    histogram = np.zeros((shape.channels, 256), np.int64)
    with ExitStack() as stack:
        images = {s: stack.enter_context(NpyFile(folder / f"{s}.images.npy", np.uint8, row)) for s in splits}
        targets = {s: stack.enter_context(NpyFile(folder / f"{s}.labels.npy", np.int64)) for s in splits}
        for record in records:
            assert record.label is not None
            image = pixels(record.content, shape.size, shape.channels, shape.background)
            images[record.split].append(image[np.newaxis])
            targets[record.split].append(np.array([index[record.label]]))
            if record.split == "train":
                histogram += [np.bincount(channel.ravel(), minlength=256) for channel in image]
    return histogram


def moments_of(examples: Path) -> tuple[list[float], list[float]]:
    """Mean and standard deviation per channel of other examples."""
    facts = read_facts(examples)
    return facts["mean"], facts["std"]


def moments(histogram: Histogram) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of x / 255 per channel, from counts (channels, 256).

    In integers: the rounding of a matrix product depends on memory alignment, and another last bit would change all
    later keys.
    """
    means, deviations = [], []
    for counts in histogram.tolist():
        total = sum(counts)
        first = sum(count * level for level, count in enumerate(counts))
        second = sum(count * level**2 for level, count in enumerate(counts))
        means.append(first / (255 * total))
        deviation = math.sqrt((total * second - first**2) / (255 * total) ** 2)
        deviations.append(max(deviation, GREY_LEVEL))  # a constant channel has a deviation of 0
    return means, deviations
