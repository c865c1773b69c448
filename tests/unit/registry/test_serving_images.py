"""Encoded images in a registered classifier: its version's own file decodes them."""

import base64
import io
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from PIL import Image
from torch import Tensor

from understudy.data import images
from understudy.models.facts import Facts
from understudy.tasks.image_classification import Predictor


def classifier(**image: Any) -> Predictor:
    facts: dict[str, Any] = {
        "labels": ["a", "b"],
        "image": {"channels": 3, **image},
        "mean": [0.5] * 3,
        "std": [0.5] * 3,
    }

    def logits(pixels: Tensor) -> Tensor:
        return pixels.mean(dim=(1, 2, 3))[:, None].repeat(1, 2)

    return Predictor(cast("Facts", facts), logits, Path(), {"images": str(images.__file__)}, None)


def encoded(image: Image.Image, kind: str) -> str:
    stream = io.BytesIO()
    image.save(stream, kind)
    return base64.b64encode(stream.getvalue()).decode()


@pytest.mark.parametrize(("conversion", "level"), [({}, 255), ({"background": "black"}, 0)])
def test_a_transparent_image_lies_on_the_background_of_training(conversion: dict[str, str], level: int) -> None:
    content = encoded(Image.new("RGBA", (4, 4), (9, 99, 199, 0)), "PNG")
    decoded = classifier(size=4, **conversion)._decoded(np.array([content], dtype=object))
    assert decoded.shape == (1, 3, 4, 4)
    assert set(decoded.ravel().tolist()) == {level}


def test_postscript_in_a_request_is_refused_by_its_row() -> None:
    request = [encoded(Image.new("RGB", (4, 4)), kind) for kind in ("PNG", "EPS")]
    with pytest.raises(ValueError, match=r"image 1: cannot be decoded as an image \(it is none of AVIF, BMP"):
        classifier(size=4).predict(np.array(request, dtype=object), {})
