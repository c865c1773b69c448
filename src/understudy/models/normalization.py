"""The mean and deviation that a pretrained image model was trained with, from the recipe or the model's files.

Never guessed. With the data's own instead of its maker's, a classifier measured 41 % where it had 55 %.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from understudy.errors import InputError
from understudy.models.facts import DESCRIPTION, AboutImages
from understudy.recipe import PretrainedModel
from understudy.store.files import read_json

PREPROCESSOR = "preprocessor_config.json"

Moments = tuple[list[float], list[float]]
"""Mean and standard deviation of x / 255, a number per channel each."""


def normalization(model: PretrainedModel, source: Path, facts: AboutImages, where: str) -> Moments:
    """What the model's inputs were normalised with when it was trained.

    Args:
        model: the recipe's section.
        source: the folder with the model's files.
        facts: of the examples that it is to see.
        where: the recipe's path of the model, for errors.

    Raises:
        InputError: neither the recipe nor the model's files say it, or it does not fit the number of channels.
    """
    channels = facts["image"]["channels"]
    if model.normalization is not None:
        place = f"{where}.normalization"
        return _checked(model.normalization.mean, model.normalization.std, channels, place)
    if ours := read_json(source / DESCRIPTION):
        return ours["mean"], ours["std"]
    said = _from_preprocessor_config(source / PREPROCESSOR, channels, where)
    if said is None:
        rounded = ([round(value, 4) for value in facts[key]] for key in ("mean", "std"))
        raise InputError(
            f"{where}.pretrained: {model.pretrained} does not say what its images were normalised with: no image_mean "
            f"and image_std in a {PREPROCESSOR}. Ask who trained it, and say it as {where}.normalization: "
            "{{mean: [...], std: [...]}}; were it the data's own: {{mean: {}, std: {}}}".format(*rounded)
        )
    return said


def _from_preprocessor_config(path: Path, channels: int, where: str) -> Moments | None:
    """What transformers' image processor would do, by its file; None where that does not tell."""
    if not path.exists():
        return None
    place = f"{where}.pretrained: {path.name}"
    try:
        said: dict[str, Any] = json.loads(path.read_bytes())
    except ValueError as error:
        raise InputError(f"{place}: is not JSON ({error}). Fetch it again.") from error
    mean, std = (said.get("image_mean"), said.get("image_std")) if said.get("do_normalize", True) else (0.0, 1.0)
    if mean is None or std is None:
        return None
    # Both are of rescaled pixels; 255 * rescale_factor is 1 for nearly everyone.
    unit = 255 * (said.get("rescale_factor", 1 / 255) if said.get("do_rescale", True) else 1)
    mean, std = _checked(mean, std, channels, place)
    return [value / unit for value in mean], [value / unit for value in std]


def _checked(mean: float | Sequence[float], std: float | Sequence[float], channels: int, place: str) -> Moments:
    """One number per channel; transformers writes a single number where all are the same."""
    per_channel = [[value] * channels if isinstance(value, int | float) else list(value) for value in (mean, std)]
    for name, values in zip(("mean", "std"), per_channel, strict=True):
        if len(values) != channels:
            raise InputError(f"{place}: {name} has {len(values)} numbers, the images have {channels} channels")
    return per_channel[0], per_channel[1]
