import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from understudy.errors import InputError
from understudy.models.facts import Facts
from understudy.models.normalization import NORMALIZING, PREPROCESSOR, normalization
from understudy.recipe import PretrainedModel

FACTS: Facts = {
    "task": "image-classification",
    "labels": ["a", "b"],
    "image": {"size": 8, "channels": 1},
    "mean": [0.45678],
    "std": [0.2],
}

HALF = {"image_mean": [0.5], "image_std": [0.25]}


def moments(folder: Path, processor: dict[str, Any] | str | None, **model: Any) -> tuple[list[float], list[float]]:
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
    means, deviations = moments(tmp_path, processor)
    np.testing.assert_allclose([*means, *deviations], [mean, std])


@pytest.mark.parametrize("processor", [None, {}, {"image_mean": None, "image_std": None}, {"image_mean": [0.5]}])
def test_what_nobody_says_is_not_guessed(tmp_path: Path, processor: dict[str, Any] | None) -> None:
    message = (
        r"teacher\.model\.pretrained: the normalisation of owner/name is unknown.*"
        r"teacher\.model\.normalization: .*the data's own: \{mean: \[0\.4568\], std: \[0\.2\]\}"
    )
    with pytest.raises(InputError, match=message):
        moments(tmp_path, processor)


@pytest.mark.parametrize("processor", [None, {"image_mean": [0.5], "image_std": [0.25]}])
def test_the_recipe_has_the_last_word(tmp_path: Path, processor: dict[str, Any] | None) -> None:
    settings = {"mean": [0.1], "std": [0.3]}
    assert moments(tmp_path, processor, normalization=settings) == ([0.1], [0.3])


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
        ("[]", {}, r"preprocessor_config\.json: is not a JSON object"),
        ({**HALF, "image_std": [0]}, {}, r"std contains 0; all its numbers must be above 0"),
        ({**HALF, "image_mean": ["a"]}, {}, r'mean is \["a"\]; it must be a number for each channel'),
        ({**HALF, "rescale_factor": None}, {}, r"rescale_factor is null, not a number above 0"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, processor: Any, model: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        moments(tmp_path, processor, **model)


@pytest.mark.parametrize(
    ("processor", "key"),
    [
        ({"image_processor_type": "EfficientNetImageProcessor"}, "include_top"),
        ({"image_processor_type": "EfficientNetImageProcessorFast", "include_top": True}, "include_top"),
        ({"include_top": True}, "include_top"),
        ({"rescale_offset": True}, "rescale_offset"),
    ],
)
def test_what_no_mean_and_deviation_of_the_file_expresses_is_asked_for(
    tmp_path: Path, processor: dict[str, Any], key: str
) -> None:
    with pytest.raises(InputError, match=rf"{key} changes pixels beyond image_mean .* teacher\.model\.normalization"):
        moments(tmp_path, HALF | processor)
    assert moments(tmp_path, HALF | processor, normalization={"mean": [0.1], "std": [0.3]}) == ([0.1], [0.3])
    assert moments(tmp_path, HALF | processor | {key: False}) == ([0.5], [0.25])


@pytest.mark.parametrize("settings", [{}, {"normalization": {"mean": [0.1], "std": [0.3]}}])
@pytest.mark.parametrize(
    "processor", [{"do_flip_channel_order": True}, {"feature_extractor_type": "MobileViTImageProcessor"}]
)
def test_a_model_that_sees_other_colours_is_refused_whatever_the_recipe_says(
    tmp_path: Path, processor: dict[str, Any], settings: dict[str, Any]
) -> None:
    with pytest.raises(InputError, match=r"takes channels in the order blue, green, red .*; take another model"):
        moments(tmp_path, HALF | processor, **settings)


@pytest.mark.parametrize("key", ["do_normalize", "do_rescale"])
def test_a_processor_that_is_not_known_has_to_say_what_it_does(tmp_path: Path, key: str) -> None:
    both = {**HALF, "image_processor_type": "GemmaImageProcessor", "do_normalize": True, "do_rescale": True}
    assert moments(tmp_path, both) == ([0.5], [0.25])
    del both[key]
    with pytest.raises(InputError, match=f"has no {key}, and the default of GemmaImageProcessor is not known here"):
        moments(tmp_path, both)


@pytest.mark.parametrize("name", ["ViTFeatureExtractor", "ViTImageProcessor", "ViTImageProcessorFast", None])
def test_what_is_left_out_is_done_by_known_processors_and_in_files_without_their_name(
    tmp_path: Path, name: str | None
) -> None:
    assert moments(tmp_path, {**HALF, "image_processor_type": name}) == ([0.5], [0.25])


@pytest.mark.parametrize("name", sorted(NORMALIZING))
def test_known_processors_are_those_that_transformers_has_do_both(name: str) -> None:
    import transformers

    processor = getattr(transformers, f"{name}ImageProcessorPil")
    assert (processor.do_normalize, processor.do_rescale) == (True, True)
    assert not getattr(processor, "do_flip_channel_order", False)
    assert not getattr(processor, "rescale_offset", False)
