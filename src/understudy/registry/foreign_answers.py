"""Predictions of a model that understudy did not make, in a separate process: python -m ... MODEL FOLDER.

Loading such a model runs its code. This process has none of the run's credentials in its environment, and its output
is numbers: `labels.npy` (N,) as indices into the list of labels, `probabilities.npy` (N, K), or `bits_per_byte.npy`
(N,). FOLDER contains the inputs: `images.npy` (N, C, H, W) uint8 and `labels.json`, or `texts.json`.
"""

import base64
import io
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from mlflow.pyfunc import PyFuncModel

AT_ONCE = 256
SUM = 1e-3  # tolerance for the sum of an image's probabilities, which should be 1
Pixels = NDArray[np.uint8]


class Misfit(Exception):
    """The model cannot be queried, or its outputs cannot be read; the message gives the reason and the fix."""


def answers(model: "PyFuncModel", folder: Path) -> tuple[str, NDArray[Any]]:
    """The kind of the predictions, and the predictions.

    Raises:
        Misfit: the model's inputs or outputs are not those of the task.
    """
    if (folder / "texts.json").exists():
        texts = json.loads((folder / "texts.json").read_text(encoding="utf-8"))
        results = [_bits_per_byte(model.predict(_table("text", batch))) for batch in _parts(texts)]
        return "bits_per_byte", np.concatenate(results)
    images, labels = np.load(folder / "images.npy"), json.loads((folder / "labels.json").read_text(encoding="utf-8"))
    schema = model.metadata.get_input_schema()
    predictions = [_read(model.predict(_inputs(schema, batch)), labels, len(batch)) for batch in _parts(images)]
    kinds = {kind for kind, _ in predictions}
    if len(kinds) != 1:
        raise Misfit("it answers some images with labels and others with probabilities")
    return kinds.pop(), np.concatenate([batch for _, batch in predictions])


def _parts(items: Any) -> Iterator[Any]:
    for start in range(0, len(items), AT_ONCE):
        yield items[start : start + AT_ONCE]


def _inputs(schema: Any, images: Pixels) -> Any:
    """Images in the form that the signature requires: raw pixels, or encoded as PNG."""
    if schema is None:
        raise Misfit("it has no signature for its inputs; log it with one (mlflow.models.infer_signature)")
    first = schema.inputs[0]
    if len(schema.inputs) != 1:
        raise Misfit(f"it takes {len(schema.inputs)} inputs, and an image is one")
    if not schema.is_tensor_spec():
        if first.type.name not in ("string", "binary"):
            raise Misfit(f"its column {first.name} is {first.type.name}; images are binary, or Base64 in a string")
        encoded: list[Any] = [_png(image) for image in images]
        texts = (
            [base64.b64encode(image_bytes).decode() for image_bytes in encoded]
            if first.type.name == "string"
            else encoded
        )
        return _table(first.name or "image", texts)
    if first.type == np.dtype(object):
        return np.array([_png(image) for image in images], dtype=object)
    if first.type != np.uint8:
        raise Misfit(
            f"it takes {first.type}, for which the range of pixels, to 1 or to 255, is unknown; register it with "
            "pixels as uint8, or with encoded images"
        )
    return _shaped(images, tuple(first.shape[1:]))


def _shaped(images: Pixels, shape: tuple[int, ...]) -> Pixels:
    count, channels, height, width = images.shape
    forms = {
        (channels, height, width): images,
        (height, width, channels): images.transpose(0, 2, 3, 1),
        (channels * height * width,): images.reshape(count, -1),
        **({(height, width): images[:, 0]} if channels == 1 else {}),
    }
    if shape not in forms:
        raise Misfit(
            f"it takes pixels of shape {shape}, and this run's images have {channels} channels of {height} x {width}"
        )
    return forms[shape]


def _png(image: Pixels) -> bytes:
    from PIL import Image

    stream = io.BytesIO()
    pixels = image[0] if len(image) == 1 else image.transpose(1, 2, 0)
    Image.fromarray(np.ascontiguousarray(pixels)).save(stream, "PNG")
    return stream.getvalue()


def _table(column: str, values: Sequence[Any]) -> Any:
    import pandas as pd

    return pd.DataFrame({column: list(values)})


def _read(output: Any, labels: list[str], count: int) -> tuple[str, NDArray[Any]]:
    """Parse predictions for images: a column for each label, a column `label`, a list of labels, or probabilities."""
    columns = [str(name) for name in output.columns] if hasattr(output, "columns") else []
    if set(labels) <= set(columns):
        output.columns = columns
        return "probabilities", _probabilities(output[labels].to_numpy(), count, len(labels))
    if columns:
        if "label" not in columns and len(columns) != 1:
            raise Misfit(f"its columns {', '.join(columns[:5])} are neither the labels, nor is one of them `label`")
        output = output["label" if "label" in columns else output.columns[0]].to_numpy()
    values = np.asarray(output)
    if values.ndim == 2 and values.shape[1] > 1:
        return "probabilities", _probabilities(values, count, len(labels))
    indices = {label: index for index, label in enumerate(labels)}
    names = [_name(value) for value in values.ravel()]
    unknown = [name for name in names if name not in indices]
    if len(names) != count or unknown:
        problem = f"{unknown[0]!r}, which is no label of this run's data" if unknown else f"{len(names)} answers"
        raise Misfit(f"{count} images were answered with {problem}; answer with labels, or with a column for each")
    return "labels", np.array([indices[name] for name in names], dtype=np.int64)


def _name(value: Any) -> str:
    """A label as in the data; the model may return an integer label as a float."""
    return str(int(value)) if isinstance(value, float | np.floating) and float(value).is_integer() else str(value)


def _probabilities(values: NDArray[Any], count: int, labels: int) -> NDArray[np.float64]:
    if values.shape != (count, labels):
        raise Misfit(f"its answers have the shape {values.shape}, and {count} images have {labels} labels each")
    shares = values.astype(np.float64)
    if not np.isfinite(shares).all() or shares.min() < 0 or np.abs(shares.sum(axis=1) - 1).max() > SUM:
        raise Misfit("its answers are no probabilities: they do not add up to 1 for each image (are they logits?)")
    return shares


def _bits_per_byte(output: Any) -> NDArray[np.float64]:
    if "bits_per_byte" not in getattr(output, "columns", ()):
        raise Misfit("it answers texts without a column bits_per_byte, and nothing else can be compared")
    return np.asarray(output["bits_per_byte"].to_numpy(), dtype=np.float64)


def main(model: str, folder: str) -> None:
    """Run a model and write its predictions to the folder of the inputs."""
    import mlflow.pyfunc

    try:
        kind, predictions = answers(mlflow.pyfunc.load_model(model), Path(folder))
    except Misfit as error:
        Path(folder, "misfit.txt").write_text(str(error), encoding="utf-8")
        sys.exit(2)
    np.save(Path(folder, f"{kind}.npy"), predictions, allow_pickle=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
