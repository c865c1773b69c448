"""Image classification: one of a fixed set of labels for each image.

Like every task's module, it imports nothing of understudy and nothing heavy at its top: the recipe loads it, and MLflow
stores it with each version.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from types import ModuleType

    from numpy.typing import NDArray
    from torch import Tensor, nn

    from understudy.data.loader import Examples
    from understudy.data.measured import Integers, TestSplit
    from understudy.data.prepare import Batches
    from understudy.data.raw import Broken, Checked, Raw
    from understudy.data.records import Content
    from understudy.models.facts import Facts
    from understudy.recipe.data import Data
    from understudy.recipe.tasks import Kind

NOUN: str = "image"
INPUT: str = "image"
TARGETS: str = "images"
FIELDS: "Mapping[str, Kind]" = {"image": "image", "label": "label"}
LABELLED: bool = True
PACKED: bool = False
PROPOSED_FOR: str = "images"
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


def prepare(
    data: "Data", labels: list[str], records: "Path", batches: "Batches", folder: "Path", like: "Path | None" = None
) -> "Facts":
    """Pixels of one shape; their mean and deviation, by which a model normalises them."""
    from itertools import chain

    from understudy.data.image_arrays import moments, moments_of, write_images
    from understudy.data.raw import SPLITS
    from understudy.recipe.data import Image

    del records
    shape = data.image or Image()
    histogram = write_images(chain.from_iterable(batches), labels, shape, SPLITS, folder)
    mean, deviation = moments_of(like) if like else moments(histogram)
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
    from understudy.data.loader import LabelledExamples

    del facts
    return LabelledExamples(folder, split, "images")


def expected(data: "Data", labels: "Sequence[str]", tokens: int) -> "Facts":
    """Images of the recipe's shape."""
    from understudy.recipe.data import Image

    del tokens
    shape = data.image or Image()
    return {
        "task": "image-classification",
        "labels": list(labels),
        "image": {"size": shape.size, "channels": shape.channels},
        "mean": [0.5] * shape.channels,
        "std": [0.5] * shape.channels,
    }


def blank(facts: "Facts", count: int) -> "tuple[Tensor, Tensor]":
    """Black images with the first label."""
    import torch

    image = facts["image"]
    pixels = torch.zeros(count, image["channels"], image["size"], image["size"], dtype=torch.uint8)
    return pixels, torch.zeros(count, dtype=torch.int64)


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
    from understudy.data.measured import Labelled
    from understudy.data.records import read
    from understudy.recipe.data import Image

    del stride
    if model.get("image") == facts.get("image"):
        return Labelled(examples, "images")
    assert records is not None
    assert folder is not None
    shape = Image.model_validate(model["image"])
    write_images(chain.from_iterable(read(records, "test")), facts["labels"], shape, ("test",), folder)
    return Labelled(folder, "images")


def shown(examples: "Path", facts: "Facts", number: int) -> "NDArray[Any]":
    """The pixels."""
    import numpy as np

    del facts
    pixels: NDArray[Any] = np.load(examples / "test.images.npy", mmap_mode="r")[number]
    return pixels


def learned(examples: "Path") -> "list[list[tuple[str, bool]]]":
    """Nothing to show: all of an example is learned."""
    del examples
    return []


OUTPUTS: "Mapping[str, str]" = {"label": "string", "probability": "double", "probabilities": "doubles"}
PARAMS: "Mapping[str, int]" = {}
LIBRARIES: tuple[str, ...] = ("PIL",)
FILES: "Mapping[str, str]" = {"images": "understudy.data.images"}
"""Images are decoded and resized as in training."""
BATCH = 256  # images


def inputs(facts: "Facts") -> dict[str, str]:
    """Images, encoded or as pixels: MLflow has no type for either-or."""
    del facts
    return {}


def example(facts: "Facts") -> dict[str, list[str]]:
    """A grey ramp as a PNG in base64, as in a JSON request."""
    import base64
    import io

    import numpy as np
    from PIL import Image

    size = facts["image"]["size"]
    ramp = np.linspace(0, 255, size).astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(np.tile(ramp, (size, 1))).save(stream, "PNG")
    return {"image": [base64.b64encode(stream.getvalue()).decode()]}


class Predictor:
    """A registered image classifier. Images are resized and normalised as in training."""

    def __init__(
        self,
        facts: "Facts",
        logits: "Callable[[Tensor], Tensor]",
        folder: "Path",
        artifacts: "Mapping[str, str]",
        stride: int | None,
    ) -> None:
        del folder, stride
        self.facts, self.logits, self.images = facts, logits, _decoder(artifacts["images"])

    def predict(self, model_input: "NDArray[Any]", params: "Mapping[str, Any]") -> dict[str, Any]:
        """A row for each image: label, probability, probabilities.

        Args:
            model_input: N encoded images (bytes, or base64 in JSON), or their pixels, integers from 0 to 255,
                (N, C, S, S).
            params: unused.
        """
        import torch

        del params
        pixels = self._decoded(model_input) if model_input.ndim == 1 else self._checked(model_input)
        mean, std = (torch.tensor(self.facts[key]).view(1, -1, 1, 1) * 255 for key in ("mean", "std"))
        parts = torch.split(torch.from_numpy(pixels), BATCH) if len(pixels) else ()  # networks refuse an empty batch
        logits = [self.logits((part - mean) / std) for part in parts] or [torch.empty(0, len(self.facts["labels"]))]
        probabilities = torch.cat(logits).double().softmax(dim=-1).numpy()
        return {
            "label": [self.facts["labels"][index] for index in probabilities.argmax(axis=1)],
            "probability": probabilities.max(axis=1),
            "probabilities": probabilities.tolist(),
        }

    @property
    def shape(self) -> tuple[int, int, int]:
        """The network's input shape: channels, height, width."""
        image = self.facts["image"]
        return image["channels"], image["size"], image["size"]

    def _decoded(self, rows: "NDArray[Any]") -> "NDArray[Any]":
        import numpy as np

        channels, size, _ = self.shape
        background = self.facts["image"].get("background", "white")
        images = np.empty((len(rows), *self.shape), np.uint8)
        for number, image in enumerate(rows):
            try:
                images[number] = self.images.pixels(_content(image), size, channels, background)
            except ValueError as error:
                raise ValueError(f"image {number}: {error}") from error
        return images

    def _checked(self, rows: "NDArray[Any]") -> "NDArray[Any]":
        import numpy as np

        try:
            numbers = np.array(rows.tolist()) if rows.dtype == object else rows  # JSON input has dtype object
        except ValueError as error:
            raise self._refusal("rows of different lengths") from error
        is_integer = np.issubdtype(numbers.dtype, np.integer)
        in_range = is_integer and numbers.min(initial=0) >= 0 and numbers.max(initial=0) <= 255
        if numbers.shape[1:] != self.shape or not in_range:
            raise self._refusal(f"{numbers.dtype} of shape {numbers.shape}")
        return numbers.astype(np.uint8)

    def _refusal(self, reason: str) -> ValueError:
        return ValueError(
            "this model takes encoded images of any size, or pixels as whole numbers from 0 to 255 of shape "
            f"(N, {', '.join(map(str, self.shape))}); these are {reason}"
        )


def _content(image: object) -> bytes:
    """An encoded image's bytes.

    Raises:
        ValueError: it is neither bytes nor base64.
    """
    import base64

    if isinstance(image, bytes):
        return image
    if not isinstance(image, str):
        raise ValueError(f"it is of type {type(image).__name__}; an encoded image is bytes, or text in base64")
    try:
        return base64.b64decode("".join(image.split()), validate=True)  # the command base64 wraps its lines
    except ValueError as error:
        raise ValueError(f"it is text and not base64 ({error})") from error


def _decoder(path: str) -> "ModuleType":
    """The version's module that decodes images."""
    import importlib.util

    spec = importlib.util.spec_from_file_location("understudy_images", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def request(examples: "Sequence[Content]") -> "tuple[dict[str, list[Any]], dict[str, int]]":
    """Encoded images."""
    return {"image": [record.content for record in examples]}, {}


def losses(facts: "Facts", rows: "Mapping[str, Any]", examples: "Sequence[Content]") -> list[float]:
    """The negative logarithm of the label's probability."""
    import math
    import sys

    labels = [facts["labels"].index(str(record.label)) for record in examples]
    predictions = zip(labels, rows["probabilities"], strict=True)
    return [-math.log(max(probabilities[index], sys.float_info.min)) for index, probabilities in predictions]


def losses_by_transformers(
    facts: "Facts", net: "Any", model: "Path", examples: "Sequence[Content]"
) -> tuple[list[float], str]:
    """Scores by the labels of config.json. The hub's format has no image processor for these models: images are
    decoded as in the pyfunc, and normalised as in docs/using/serving.md.
    """
    import numpy as np
    import torch

    image, pixels = facts["image"], _decoder(str(model.parent / "images.py")).pixels
    shape = image["size"], image["channels"], image.get("background", "white")
    inputs = torch.from_numpy(np.stack([pixels(record.content, *shape) for record in examples])) / 255
    mean, std = (torch.tensor(facts[key]).view(1, -1, 1, 1) for key in ("mean", "std"))
    with torch.inference_mode():
        logits = torch.cat([net(part).logits.float() for part in torch.split(((inputs - mean) / std).to(net.dtype), 8)])
    labels = torch.tensor([net.config.label2id[record.label] for record in examples])
    nats: list[float] = torch.nn.functional.cross_entropy(logits, labels, reduction="none").tolist()
    return nats, ""
