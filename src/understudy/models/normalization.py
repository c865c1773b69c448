"""The mean and deviation that a pretrained image model was trained with, from the recipe or the model's files.

They are never guessed: the accuracy of one classifier was 41 % with the data's values, and 55 % with its own.
"""

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from understudy.errors import InputError
from understudy.models.facts import DESCRIPTION, Facts
from understudy.recipe import PretrainedModel
from understudy.store.files import read_json

PREPROCESSOR = "preprocessor_config.json"
# fmt: off
NORMALIZING = frozenset({
    "Beit", "Bit", "CLIP", "ChineseCLIP", "ConvNext", "DeiT", "EfficientNet", "Levit", "MobileNetV1", "MobileNetV2",
    "Perceiver", "PoolFormer", "Pvt", "Segformer", "Siglip", "Siglip2", "ViT",
})
# fmt: on
"""Image processors of transformers that rescale and normalise by default."""
NAME = re.compile(r"(\w+?)(ImageProcessor|FeatureExtractor)\w*")  # ViTImageProcessorFast, older: ViTFeatureExtractor
ON_BY_DEFAULT = {"include_top": {"EfficientNet"}, "do_flip_channel_order": {"MobileViT", "PPLCNet"}}
"""Settings that are on by default, and the processors for which they are."""

Settings = Mapping[str, Any]
"""The contents of a preprocessor_config.json."""
Moments = tuple[list[float], list[float]]
"""Mean and standard deviation of x / 255, per channel."""


def normalization(model: PretrainedModel, source: Path, facts: Facts, section: str) -> Moments:
    """The mean and deviation with which the model's inputs were normalised in its training.

    Args:
        model: the recipe's section.
        source: the folder with the model's files.
        facts: the examples that the model is used on.
        section: the model's path in the recipe, for errors.

    Raises:
        InputError: neither recipe nor model files have them, they do not fit the number of channels, or the model's
            preprocessing cannot be expressed by mean and deviation.
    """
    channels = facts["image"]["channels"]
    location = f"{section}.pretrained: {PREPROCESSOR}"
    description = read_json(source / DESCRIPTION)
    settings = {} if description else _read_preprocessor(source / PREPROCESSOR, location)
    if _is_on(settings, "do_flip_channel_order"):
        raise InputError(
            f"{location}: the model takes channels in the order blue, green, red (do_flip_channel_order), and the data "
            "has red, green, blue; take another model"
        )
    if model.normalization is not None:
        location = f"{section}.normalization"
        return _checked(model.normalization.mean, model.normalization.std, channels, location)
    if description:
        return description["mean"], description["std"]
    moments = _from_processor(settings, channels, location, section)
    if moments is None:
        rounded = ([round(value, 4) for value in facts[key]] for key in ("mean", "std"))
        raise InputError(
            f"{section}.pretrained: the normalisation of {model.pretrained} is unknown: it has no image_mean and "
            f"image_std in a {PREPROCESSOR}. Ask its authors, and set {section}.normalization: "
            "{{mean: [...], std: [...]}}; if it is the data's own: {{mean: {}, std: {}}}".format(*rounded)
        )
    return moments


def _read_preprocessor(path: Path, location: str) -> Settings:
    """The file's contents; empty if there is none."""
    if not path.exists():
        return {}
    try:
        settings = json.loads(path.read_bytes())
    except ValueError as error:
        raise InputError(f"{location}: is not JSON ({error}). Fetch it again.") from error
    if not isinstance(settings, dict):
        raise InputError(f"{location}: is not a JSON object. Fetch it again.")
    return settings


def _from_processor(settings: Settings, channels: int, location: str, section: str) -> Moments | None:
    """The mean and deviation that transformers' image processor would apply; None if its file has none."""
    fix = f"Compute the equivalent mean and deviation of x / 255, and set {section}.normalization"
    for key in ("include_top", "rescale_offset"):
        if _is_on(settings, key):
            raise InputError(f"{location}: {key} changes pixels beyond image_mean and image_std. {fix}")
    normalizes, rescales = _is_step_on(settings, "do_normalize"), _is_step_on(settings, "do_rescale")
    mean, std = (0.0, 1.0) if normalizes is False else (settings.get("image_mean"), settings.get("image_std"))
    if mean is None or std is None:
        return None
    for key, is_on in (("do_normalize", normalizes), ("do_rescale", rescales)):
        if is_on is None:
            name = _processor(settings)
            raise InputError(f"{location}: has no {key}, and the default of {name} is not known here. {fix}")
    factor = settings.get("rescale_factor", 1 / 255) if rescales else 1
    if not _is_number(factor) or factor <= 0:
        raise InputError(f"{location}: rescale_factor is {json.dumps(factor)}, not a number above 0. {fix}")
    mean, std = _checked(mean, std, channels, location)
    # Both refer to rescaled pixels; 255 * rescale_factor is 1 in nearly all files.
    return [value / (255 * factor) for value in mean], [value / (255 * factor) for value in std]


def _processor(settings: Settings) -> str:
    """The processor's class; empty for old files, and if there is no file."""
    return str(settings.get("image_processor_type") or settings.get("feature_extractor_type") or "")


def _is_on(settings: Settings, key: str) -> bool:
    """Whether a setting that only some processors have is on."""
    return bool(settings[key]) if settings.get(key) is not None else _family(settings) in ON_BY_DEFAULT.get(key, ())


def _is_step_on(settings: Settings, key: str) -> bool | None:
    """Whether a step that nearly all processors have is on; None if the file does not set it and its class is unknown.

    Files without a class, and their means and deviations, are older than the classes that do not normalise.
    """
    if settings.get(key) is not None:
        return bool(settings[key])
    return True if _family(settings) in {*NORMALIZING, ""} else None


def _family(settings: Settings) -> str:
    match = NAME.fullmatch(_processor(settings))
    return match[1] if match else _processor(settings)


def _checked(mean: Any, std: Any, channels: int, location: str) -> Moments:
    """Mean and deviation, expanded to a number per channel; transformers writes a single number for equal ones."""
    checked = []
    for name, value in (("mean", mean), ("std", std)):
        values = list(value) if isinstance(value, list | tuple) else [value] * channels
        if not all(map(_is_number, values)):
            raise InputError(f"{location}: {name} is {json.dumps(value)}; it must be a number for each channel")
        if len(values) != channels:
            raise InputError(f"{location}: {name} has {len(values)} numbers, the images have {channels} channels")
        checked.append(values)
    if min(checked[1]) <= 0:
        raise InputError(f"{location}: std contains {min(checked[1]):g}; all its numbers must be above 0")
    return checked[0], checked[1]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
