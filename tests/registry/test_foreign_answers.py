"""Models of other people: their inputs and answers, and refusals with a reason."""

import base64
import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from mlflow.types.schema import ColSpec, DataType, Schema, TensorSpec
from PIL import Image

from understudy.registry.foreign_answers import Misfit, answers

LABELS = ["3", "7", "9"]
COUNT = 300  # more than are asked at once
TARGETS = np.arange(COUNT) % 3
PIXELS = np.broadcast_to(TARGETS[:, None, None, None] * 100, (COUNT, 1, 4, 6)).astype(np.uint8)


class Theirs:
    """A model that knows an image's label by its brightness, in whatever form the image comes."""

    def __init__(self, schema: Schema | None, answer: Any) -> None:
        self.metadata = SimpleNamespace(get_input_schema=lambda: schema)
        self.says, self.seen = answer, []

    def predict(self, model_input: Any) -> Any:
        values = model_input.iloc[:, 0].tolist() if isinstance(model_input, pd.DataFrame) else list(model_input)
        images = [_pixels(value) for value in values]
        self.seen += images
        return self.says(np.array([image.mean() / 100 for image in images]).astype(int))


def _pixels(value: Any) -> Any:
    if isinstance(value, str):
        value = base64.b64decode(value)
    return np.asarray(Image.open(io.BytesIO(value))) if isinstance(value, bytes) else np.asarray(value)


def tensor(*shape: int, kind: Any = np.uint8) -> Schema:
    return Schema([TensorSpec(np.dtype(kind), (-1, *shape))])


def column(kind: DataType) -> Schema:
    return Schema([ColSpec(kind, "picture")])


def shares(places: Any) -> Any:
    return np.eye(3)[places] * 0.7 + 0.1


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    np.save(tmp_path / "images.npy", PIXELS)
    (tmp_path / "labels.json").write_text(json.dumps(LABELS))
    return tmp_path


@pytest.mark.parametrize(
    "schema",
    [
        tensor(1, 4, 6),
        tensor(4, 6, 1),
        tensor(4, 6),
        tensor(24),
        tensor(kind=object),
        column(DataType.binary),
        column(DataType.string),
    ],
)
def test_images_come_in_the_form_that_the_signature_asks_for(questions: Path, schema: Schema) -> None:
    model = Theirs(schema, lambda places: np.array(LABELS)[places])
    kind, values = answers(model, questions)  # type: ignore[arg-type]
    assert kind == "labels"
    assert np.array_equal(values, TARGETS)
    assert all(np.array_equal(np.ravel(picture), PIXELS[at].ravel()) for at, picture in enumerate(model.seen))


def _by_columns(names: list[Any], order: list[int]) -> Any:
    return lambda places: pd.DataFrame({names[at]: shares(places)[:, at] for at in order})


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (lambda places: np.array(LABELS)[places], "labels"),
        (lambda places: np.array([3, 7, 9])[places], "labels"),
        (lambda places: np.array([3.0, 7.0, 9.0])[places], "labels"),
        (lambda places: np.array(LABELS)[places].tolist(), "labels"),
        (lambda places: np.array(LABELS)[places][:, None], "labels"),
        (lambda places: pd.Series(np.array(LABELS)[places]), "labels"),
        (lambda places: pd.DataFrame({"any name": np.array(LABELS)[places]}), "labels"),
        (lambda places: pd.DataFrame({"label": np.array(LABELS)[places], "probability": 0.8}), "labels"),
        (shares, "probabilities"),
        (_by_columns(LABELS, [2, 0, 1]), "probabilities"),
        (_by_columns([3, 7, 9], [1, 2, 0]), "probabilities"),
    ],
)
def test_labels_and_probabilities_are_read_in_the_data_s_order(questions: Path, answer: Any, kind: str) -> None:
    kind_and_values = answers(Theirs(tensor(24), answer), questions)  # type: ignore[arg-type]
    assert kind_and_values[0] == kind
    assert np.allclose(kind_and_values[1], TARGETS if kind == "labels" else shares(TARGETS))


@pytest.mark.parametrize(
    ("schema", "answer", "why"),
    [
        (None, shares, "has no signature"),
        (tensor(24, kind=np.float32), shares, "the range of pixels, to 1 or to 255, is unknown"),
        (tensor(8, 8), shares, r"takes pixels of shape \(8, 8\)"),
        (Schema([ColSpec(DataType.double, f"pixel{at}") for at in range(24)]), shares, "takes 24 inputs"),
        (column(DataType.double), shares, "column picture is double"),
        (tensor(24), lambda places: places, "'0', which is no label"),
        (tensor(24), lambda places: np.array(LABELS)[places][:-1], "answers"),
        (tensor(24), lambda places: 5 * shares(places), "no probabilities"),
        (tensor(24), lambda places: shares(places) * np.nan, "no probabilities"),
        (tensor(24), lambda places: shares(places)[:, :2], "3 labels each"),
        (tensor(24), lambda places: pd.DataFrame({"cat": places, "dog": places}), "neither the labels, nor"),
    ],
)
def test_an_answer_that_cannot_be_compared_is_refused_with_the_reason(
    questions: Path, schema: Schema | None, answer: Any, why: str
) -> None:
    with pytest.raises(Misfit, match=why):
        answers(Theirs(schema, answer), questions)  # type: ignore[arg-type]


def test_texts_are_compared_by_bits_per_byte_alone(tmp_path: Path) -> None:
    (tmp_path / "texts.json").write_text(json.dumps(["a", "bb", "ccc"]))
    lengths = SimpleNamespace(predict=lambda table: pd.DataFrame({"bits_per_byte": table["text"].str.len()}))
    kind, values = answers(lengths, tmp_path)  # type: ignore[arg-type]
    assert (kind, values.tolist()) == ("bits_per_byte", [1.0, 2.0, 3.0])
    with pytest.raises(Misfit, match="without a column bits_per_byte"):
        answers(SimpleNamespace(predict=lambda table: table), tmp_path)  # type: ignore[arg-type]
