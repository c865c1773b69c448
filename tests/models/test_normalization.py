import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from understudy.errors import InputError
from understudy.models.facts import AboutImages
from understudy.models.normalization import PREPROCESSOR, normalization
from understudy.recipe import PretrainedModel

FACTS: AboutImages = {
    "task": "image-classification",
    "labels": ["a", "b"],
    "image": {"size": 8, "channels": 1},
    "mean": [0.45678],
    "std": [0.2],
}


def found(folder: Path, processor: dict[str, Any] | str | None, **model: Any) -> tuple[list[float], list[float]]:
    if processor is not None:
        text = processor if isinstance(processor, str) else json.dumps(processor)
        (folder / PREPROCESSOR).write_text(text)
    return normalization(PretrainedModel(pretrained="owner/name", **model), folder, FACTS, "teacher.model")


@pytest.mark.parametrize(
    ("processor", "mean", "std"),
    [
        ({"image_mean": [0.5], "image_std": [0.25]}, 0.5, 0.25),
        ({"image_mean": 0.5, "image_std": 0.25}, 0.5, 0.25),
        ({"image_mean": [0.5], "image_std": [0.25], "do_normalize": False}, 0, 1),
        ({"do_normalize": False}, 0, 1),
        ({"image_mean": [1.0], "image_std": [1.0], "rescale_factor": 1 / 127.5}, 0.5, 0.5),
        ({"image_mean": [127.5], "image_std": [51.0], "do_rescale": False}, 0.5, 0.2),
    ],
)
def test_images_are_normalised_as_the_models_maker_did(
    tmp_path: Path, processor: dict[str, Any], mean: float, std: float
) -> None:
    means, deviations = found(tmp_path, processor)
    np.testing.assert_allclose([*means, *deviations], [mean, std])


@pytest.mark.parametrize("processor", [None, {}, {"image_mean": None, "image_std": None}, {"image_mean": [0.5]}])
def test_what_nobody_says_is_not_guessed(tmp_path: Path, processor: dict[str, Any] | None) -> None:
    message = (
        r"teacher\.model\.pretrained: owner/name does not say what its images were normalised with.*"
        r"teacher\.model\.normalization: .*the data's own: \{mean: \[0\.4568\], std: \[0\.2\]\}"
    )
    with pytest.raises(InputError, match=message):
        found(tmp_path, processor)


@pytest.mark.parametrize("processor", [None, {"image_mean": [0.5], "image_std": [0.25]}])
def test_the_recipe_has_the_last_word(tmp_path: Path, processor: dict[str, Any] | None) -> None:
    given = {"mean": [0.1], "std": [0.3]}
    assert found(tmp_path, processor, normalization=given) == ([0.1], [0.3])


@pytest.mark.parametrize(
    ("processor", "model", "message"),
    [
        (
            {"image_mean": [0.5] * 3, "image_std": [0.5] * 3},
            {},
            r"preprocessor_config\.json: mean has 3 numbers, the images have 1 channels",
        ),
        (None, {"normalization": {"mean": [0.5], "std": [0.5] * 3}}, r"normalization: std has 3 numbers"),
        ("{", {}, r"teacher\.model\.pretrained: preprocessor_config\.json: is not JSON"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, processor: Any, model: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        found(tmp_path, processor, **model)
