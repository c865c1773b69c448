"""Inputs of a registered image classifier: photos of any size, bytes or base64, and pixels."""

import base64
import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow.exceptions import MlflowException
from PIL import Image

from tests.registry.saved_models import VIT, describe_images, save
from tests.registry.submitted import Pipeline, connect
from understudy.data.images import pixels
from understudy.registry.server import tracking_uri


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose registry holds a classifier of 8 x 8 grey pixels."""
    folder = tmp_path_factory.mktemp("home")
    pipeline = Pipeline(folder, tracking_uri(folder, None))
    pipeline.register(student=pipeline.adopt(save(folder / "vit", VIT, describe_images())))
    return folder


@pytest.fixture(scope="module")
def model(home: Path) -> Any:
    connect(tracking_uri(home, None))
    return mlflow.pyfunc.load_model("models:/digits@challenger")


@pytest.fixture(scope="module")
def photo() -> bytes:
    """A colourful JPEG of 37 x 20 pixels."""
    stream = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 37, 3), dtype=np.uint8)).save(stream, "JPEG")
    return stream.getvalue()


def test_a_photo_is_prepared_as_for_training(model: Any, photo: bytes) -> None:
    expected = model.predict(pixels(photo, 8, 1)[np.newaxis])
    text = base64.encodebytes(photo).decode()
    for model_input in (np.array([photo], object), pd.DataFrame({"image": [photo]}), pd.DataFrame({"image": [text]})):
        pd.testing.assert_frame_equal(model.predict(model_input), expected)


def test_pixels_may_be_numbers_of_any_width(model: Any) -> None:
    grey = np.full((2, 1, 8, 8), 200, np.uint8)
    pd.testing.assert_frame_equal(model.predict(grey), model.predict(grey.astype(np.int64)))


@pytest.mark.parametrize("model_input", [np.array([], object), np.zeros((0, 1, 8, 8), np.uint8)])
def test_no_images_have_no_rows(model: Any, model_input: Any) -> None:
    predictions = model.predict(model_input)
    assert len(predictions) == 0
    assert list(predictions.columns) == ["label", "probability", "probabilities"]


def ragged() -> Any:
    """Pixels whose rows differ in length, as MLflow's server reads them from JSON."""
    rows = np.empty((1, 1, 2), object)
    rows[0, 0, 0], rows[0, 0, 1] = [1, 2], [3]
    return rows


@pytest.mark.parametrize(
    ("model_input", "words"),
    [
        (np.array(["no base!"], object), "image 0: it is text and not base64"),
        (np.array([b"no image"], object), r"image 0: cannot be decoded as an image \(it is none of AVIF, BMP, "),
        (np.array([7], object), "image 0: it is of type int"),
        (np.zeros((1, 1, 9, 8), np.uint8), r"of shape \(N, 1, 8, 8\); these are uint8 of shape \(1, 1, 9, 8\)"),
        (np.zeros((1, 1, 8, 8), np.float32), "whole numbers from 0 to 255 .* these are float32"),
        (np.full((1, 1, 8, 8), 256), "whole numbers from 0 to 255"),
        (np.full((1, 1, 8, 8), -1), "whole numbers from 0 to 255"),
        (ragged(), r"of shape \(N, 1, 8, 8\); these are rows of different lengths"),
    ],
)
def test_invalid_images_are_named(model: Any, model_input: Any, words: str) -> None:
    with pytest.raises(MlflowException, match=words):
        model.predict(model_input)


def test_the_example_is_a_request_in_json(model: Any) -> None:
    assert list(model.input_example.columns) == ["image"]
    assert len(model.predict(model.input_example)) == 1


@pytest.fixture
def served(home: Path, tmp_path: Path) -> Iterator[str]:
    """The address of `mlflow models serve` on the local registry."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    command = [sys.executable, "-m", "mlflow", "models", "serve", "-m", "models:/digits@challenger"]
    command += ["--env-manager", "local", "--port", address.partition(":")[2]]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # MLflow looks for uvicorn there
    environment = {**os.environ, "PATH": path, "MLFLOW_TRACKING_URI": tracking_uri(home, None)}
    environment |= {"MLFLOW_DISABLE_TELEMETRY": "true"}
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    deadline = time.time() + 300
    while True:
        try:
            urlopen(f"http://{address}/ping", timeout=5).close()
            break
        except OSError:
            assert process.poll() is None, (tmp_path / "log").read_text()
            assert time.time() < deadline
            time.sleep(0.2)
    yield f"http://{address}/invocations"
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def ask(address: str, **content: Any) -> list[list[float]]:
    """The probabilities of each image."""
    request = Request(address, json.dumps(content).encode(), {"Content-Type": "application/json"})
    with urlopen(request, timeout=60) as answer:
        return [row["probabilities"] for row in json.load(answer)["predictions"]]


def test_mlflow_serves_a_version_of_the_local_registry(model: Any, photo: bytes, served: str) -> None:
    (expected,) = model.predict(np.array([photo], object))["probabilities"]
    text = base64.b64encode(photo).decode()
    probabilities = ask(served, inputs=[text, text])
    probabilities += ask(served, dataframe_records=[{"image": text}])
    probabilities += ask(served, inputs=pixels(photo, 8, 1)[np.newaxis].tolist())
    np.testing.assert_allclose(probabilities, [expected] * 4, rtol=1e-5)
    with pytest.raises(HTTPError) as refused:
        ask(served, inputs=["no base!"])
    assert refused.value.code == 400
    assert "it is text and not base64" in refused.value.read().decode()
    with pytest.raises(HTTPError) as refused:
        ask(served, inputs=[[[[1, 2], [3]]]])
    assert refused.value.code == 400
    assert "these are rows of different lengths" in refused.value.read().decode()
