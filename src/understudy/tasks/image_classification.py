"""Image classification: one of a fixed set of labels for each image.

Like every task's module (task.py), it imports nothing heavy at its top.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import nn

    from understudy.data.loader import Examples
    from understudy.data.measured import Integers, TestSplit
    from understudy.data.prepare import Batches
    from understudy.data.raw import Broken, Checked, Raw
    from understudy.models.facts import Facts
    from understudy.recipe.data import Data

NOUN: str = "image"
LABELLED: bool = True
METRICS: tuple[str, ...] = ("accuracy", "nll", "calibration_error")
SETTINGS: frozenset[str] = frozenset({"data.image", "model.labels", "model.normalization", "train.augment"})
AUTO_MODEL: str = "AutoModelForImageClassification"
ARCHITECTURES: str = "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES"
PEFT_TYPE: str | None = None
LABELS_WEIGHT: float = 0.3
"""Chosen with benchmarks/defaults.py, as the temperature."""
TEMPERATURE: float = 2.0


def check(record: "Raw") -> "Checked | Broken":
    """An image has to be decoded; the key is that of its file, since other files are other images."""
    from understudy.data.images import decode, is_transparent
    from understudy.data.raw import Checked
    from understudy.store.files import sha256

    behind = "transparent in part; data.image.background says what lies behind, white by default"
    return Checked(record, sha256(record.content), behind if is_transparent(decode(record.content)) else "")


def prepare(data: "Data", labels: list[str], records: "Path", batches: "Batches", folder: "Path") -> "Facts":
    """Pixels of one shape; their mean and deviation, by which a model normalises them."""
    from itertools import chain

    from understudy.data.image_arrays import moments, write_images
    from understudy.data.raw import SPLITS
    from understudy.recipe.data import Image

    del records
    shape = data.image or Image()
    mean, deviation = moments(write_images(chain.from_iterable(batches), labels, shape, SPLITS, folder))
    facts: Facts = {
        "task": "image-classification",
        "labels": labels,
        "image": {"size": shape.size, "channels": shape.channels},
        "mean": mean,
        "std": deviation,
    }
    if shape.background == "black":
        facts["image"]["background"] = "black"
    return facts


def open_split(folder: "Path", split: str, facts: "Facts") -> "Examples":
    """Images, each with its label."""
    from understudy.data.loader import ImageExamples

    del facts
    return ImageExamples(folder, split)


def wrap(net: "nn.Module", facts: "Facts") -> "nn.Module":
    """Pixels as stored, which the wrapper normalises, to a logit for each label."""
    from understudy.models.tasks import ImageModel

    return ImageModel(net, facts["mean"], facts["std"])


def targets(examples: "Path", split: str) -> "NDArray[Any]":
    """An image has one target, the index of its label."""
    import numpy as np

    labels: NDArray[Any] = np.load(examples / f"{split}.labels.npy", mmap_mode="r")
    return labels


def lengths(examples: "Path") -> "tuple[Integers, Integers]":
    """An image is one prediction, and no text."""
    import numpy as np

    count = len(np.load(examples / "test.labels.npy", mmap_mode="r"))
    return np.ones(count, dtype=np.int64), np.zeros(count, dtype=np.int64)


def test_split(
    examples: "Path", facts: "Facts", model: "Facts", stride: int | None, records: "Path | None", folder: "Path | None"
) -> "TestSplit":
    """Images; those of a model that takes another shape are made from the records, as in the run that trained it.

    On this run's images, resized again, it would look worse than it is and let a worse student pass.
    """
    from itertools import chain

    from understudy.data.image_arrays import write_images
    from understudy.data.measured import Images
    from understudy.data.records import read
    from understudy.recipe.data import Image

    del stride
    if model.get("image") == facts.get("image"):
        return Images(examples)
    assert records is not None
    assert folder is not None
    shape = Image.model_validate(model["image"])
    write_images(chain.from_iterable(read(records, "test")), facts["labels"], shape, ("test",), folder)
    return Images(folder)


def shown(examples: "Path", facts: "Facts", number: int) -> "NDArray[Any]":
    """The pixels."""
    import numpy as np

    del facts
    pixels: NDArray[Any] = np.load(examples / "test.images.npy", mmap_mode="r")[number]
    return pixels
