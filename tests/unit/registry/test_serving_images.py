"""What the served script does with encoded images, without a model: decoding is what the version's own file does."""

import base64
import importlib.util
import io
import runpy
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from mlflow.exceptions import MlflowException
from PIL import Image

from understudy.data import images
from understudy.registry.pyfunc import SCRIPT

# MLflow warns of a class without type hints; pyfunc.signature() gives its types.
pytestmark = pytest.mark.filterwarnings("ignore:.*Any type hint is inferred as AnyType:UserWarning")


CONFIG = {"task": "image-classification", "stride": None, "precision": "fp32"}


@pytest.fixture
def classifier(monkeypatch: pytest.MonkeyPatch) -> Any:
    from mlflow.models import model_config

    monkeypatch.setattr(model_config, "__mlflow_model_config__", CONFIG, raising=False)
    served = runpy.run_path(str(SCRIPT))["ImageClassifier"]()
    served.images = _alone()
    return served


def _alone() -> ModuleType:
    """images.py as a version has it: loaded by its path."""
    spec = importlib.util.spec_from_file_location("understudy_images", str(images.__file__))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def encoded(image: Image.Image, kind: str) -> str:
    stream = io.BytesIO()
    image.save(stream, kind)
    return base64.b64encode(stream.getvalue()).decode()


@pytest.mark.parametrize(("said", "level"), [({}, 255), ({"background": "black"}, 0)])
def test_a_transparent_image_lies_on_the_background_of_training(
    classifier: Any, said: dict[str, str], level: int
) -> None:
    classifier.facts = {"image": {"size": 4, "channels": 3, **said}}
    content = encoded(Image.new("RGBA", (4, 4), (9, 99, 199, 0)), "PNG")
    found = classifier._decoded(np.array([content], dtype=object))
    assert found.shape == (1, 3, 4, 4)
    assert set(found.ravel().tolist()) == {level}


def test_postscript_in_a_request_is_refused_by_its_place(classifier: Any) -> None:
    classifier.facts = {"image": {"size": 4, "channels": 3}}
    request = [encoded(Image.new("RGB", (4, 4)), kind) for kind in ("PNG", "EPS")]
    with pytest.raises(MlflowException, match=r"image 1: cannot be decoded as an image \(it is none of AVIF, BMP"):
        classifier._decoded(np.array(request, dtype=object))
