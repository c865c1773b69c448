"""The mean and deviation that a pretrained image model was trained with, from the recipe or the model's files.

They are never guessed: one classifier measured 41 % with the data's values, and 55 % with those of its training.
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
KNOWN = frozenset({
    "Beit", "Bit", "CLIP", "ChineseCLIP", "ConvNext", "DeiT", "EfficientNet", "Levit", "MobileNetV1", "MobileNetV2",
    "Perceiver", "PoolFormer", "Pvt", "Segformer", "Siglip", "Siglip2", "ViT",
})
# fmt: on
"""Image processors of transformers that rescale and normalise by default."""
NAME = re.compile(r"(\w+?)(ImageProcessor|FeatureExtractor)\w*")  # ViTImageProcessorFast, older: ViTFeatureExtractor
TURNED_ON = {"include_top": {"EfficientNet"}, "do_flip_channel_order": {"MobileViT", "PPLCNet"}}
"""Settings that are on by default, and the processors for which they are."""

Said = Mapping[str, Any]
"""The contents of a preprocessor_config.json."""
Moments = tuple[list[float], list[float]]
"""Mean and standard deviation of x / 255, per channel."""


def normalization(model: PretrainedModel, source: Path, facts: Facts, where: str) -> Moments:
    """The mean and deviation with which the model's inputs were normalised in its training.

    Args:
        model: the recipe's section.
        source: the folder with the model's files.
        facts: the examples that the model is used on.
        where: the model's path in the recipe, for errors.

    Raises:
        InputError: neither recipe nor model files have them, they do not fit the number of channels, or the model's
            preprocessing cannot be expressed by mean and deviation.
    """
    channels = facts["image"]["channels"]
    place = f"{where}.pretrained: {PREPROCESSOR}"
    ours = read_json(source / DESCRIPTION)
    said = {} if ours else _said(source / PREPROCESSOR, place)
    if _is_on(said, "do_flip_channel_order"):
        raise InputError(
            f"{place}: the model sees blue, green and red in that order (do_flip_channel_order), and images here are "
            "red, green and blue; take another model"
        )
    if model.normalization is not None:
        place = f"{where}.normalization"
        return _checked(model.normalization.mean, model.normalization.std, channels, place)
    if ours:
        return ours["mean"], ours["std"]
    moments = _from_processor(said, channels, place, where)
    if moments is None:
        rounded = ([round(value, 4) for value in facts[key]] for key in ("mean", "std"))
        raise InputError(
            f"{where}.pretrained: {model.pretrained} does not say what its images were normalised with: no image_mean "
            f"and image_std in a {PREPROCESSOR}. Ask who trained it, and say it as {where}.normalization: "
            "{{mean: [...], std: [...]}}; were it the data's own: {{mean: {}, std: {}}}".format(*rounded)
        )
    return moments


def _said(path: Path, place: str) -> Said:
    """The file's contents; empty if there is none."""
    if not path.exists():
        return {}
    try:
        said = json.loads(path.read_bytes())
    except ValueError as error:
        raise InputError(f"{place}: is not JSON ({error}). Fetch it again.") from error
    if not isinstance(said, dict):
        raise InputError(f"{place}: is not a JSON object. Fetch it again.")
    return said


def _from_processor(said: Said, channels: int, place: str, where: str) -> Moments | None:
    """The mean and deviation that transformers' image processor would apply; None if its file has none."""
    fix = f"Work out which mean and deviation of x / 255 that is, and say it as {where}.normalization"
    for key in ("include_top", "rescale_offset"):
        if _is_on(said, key):
            raise InputError(f"{place}: {key} changes pixels beyond image_mean and image_std. {fix}")
    normalizes, rescales = _does(said, "do_normalize"), _does(said, "do_rescale")
    mean, std = (0.0, 1.0) if normalizes is False else (said.get("image_mean"), said.get("image_std"))
    if mean is None or std is None:
        return None
    for key, done in (("do_normalize", normalizes), ("do_rescale", rescales)):
        if done is None:
            raise InputError(f"{place}: has no {key}, and what {_processor(said)} does then is not known here. {fix}")
    factor = said.get("rescale_factor", 1 / 255) if rescales else 1
    if not _is_number(factor) or factor <= 0:
        raise InputError(f"{place}: rescale_factor is {json.dumps(factor)}, and no number above 0. {fix}")
    mean, std = _checked(mean, std, channels, place)
    # Both refer to rescaled pixels; 255 * rescale_factor is 1 in nearly all files.
    return [value / (255 * factor) for value in mean], [value / (255 * factor) for value in std]


def _processor(said: Said) -> str:
    """The processor's class; empty for old files, and if there is no file."""
    return str(said.get("image_processor_type") or said.get("feature_extractor_type") or "")


def _is_on(said: Said, key: str) -> bool:
    """Whether a setting that only some processors have is on."""
    return bool(said[key]) if said.get(key) is not None else _family(said) in TURNED_ON.get(key, ())


def _does(said: Said, key: str) -> bool | None:
    """Whether a step that nearly all processors have is on; None if the file does not set it and its class is unknown.

    Files without a class, and their means and deviations, are older than the classes that do not normalise.
    """
    if said.get(key) is not None:
        return bool(said[key])
    return True if _family(said) in {*KNOWN, ""} else None


def _family(said: Said) -> str:
    named = NAME.fullmatch(_processor(said))
    return named[1] if named else _processor(said)


def _checked(mean: Any, std: Any, channels: int, place: str) -> Moments:
    """Mean and deviation, expanded to a number per channel; transformers writes a single number for equal ones."""
    found = []
    for name, value in (("mean", mean), ("std", std)):
        values = list(value) if isinstance(value, list | tuple) else [value] * channels
        if not all(map(_is_number, values)):
            raise InputError(f"{place}: {name} is {json.dumps(value)}; it takes a number for each channel")
        if len(values) != channels:
            raise InputError(f"{place}: {name} has {len(values)} numbers, the images have {channels} channels")
        found.append(values)
    if min(found[1]) <= 0:
        raise InputError(f"{place}: std has {min(found[1]):g}, and pixels can only be divided by numbers above 0")
    return found[0], found[1]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
