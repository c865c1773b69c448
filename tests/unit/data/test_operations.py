"""Each operation of RandAugment does what Pillow does."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from understudy.data.operations import OPERATIONS

STRENGTHS = [-1.0, -0.7, -0.2, 0.0, 0.1, 0.5, 1.0]
FAR = 150 / 331
NEAREST = Image.Transform.AFFINE


def affine(*matrix: float) -> Callable[[Image.Image], Image.Image]:
    return lambda image: image.transform(image.size, NEAREST, matrix)


PILLOW: dict[str, Callable[[Image.Image, float], Image.Image]] = {
    "identity": lambda image, _: image,
    "autocontrast": lambda image, _: ImageOps.autocontrast(image),
    "equalize": lambda image, _: ImageOps.equalize(image),
    "rotate": lambda image, strength: image.rotate(30 * strength),
    "solarize": lambda image, strength: ImageOps.solarize(image, math.ceil(256 * (1 - abs(strength)))),
    "posterize": lambda image, strength: ImageOps.posterize(image, 8 - round(4 * abs(strength))),
    "color": lambda image, strength: ImageEnhance.Color(image).enhance(1 + 0.9 * strength),
    "contrast": lambda image, strength: ImageEnhance.Contrast(image).enhance(1 + 0.9 * strength),
    "brightness": lambda image, strength: ImageEnhance.Brightness(image).enhance(1 + 0.9 * strength),
    "sharpness": lambda image, strength: ImageEnhance.Sharpness(image).enhance(1 + 0.9 * strength),
    "shear_x": lambda image, strength: affine(1, 0.3 * strength, 0, 0, 1, 0)(image),
    "shear_y": lambda image, strength: affine(1, 0, 0, 0.3 * strength, 1, 0)(image),
    "translate_x": lambda image, strength: affine(1, 0, strength * FAR * image.width, 0, 1, 0)(image),
    "translate_y": lambda image, strength: affine(1, 0, 0, 0, 1, strength * FAR * image.width)(image),
}
MOVED = {"rotate", "shear_x", "shear_y", "translate_x", "translate_y"}


def pictures(channels: int, size: int) -> Tensor:
    """Smooth ones of few levels, noise, and one colour."""
    random = np.random.default_rng(0)
    slope = np.linspace(40, 180, size)[None, None, :, None] + np.linspace(0, 60, size)[None, None, None, :]
    smooth = np.tile(slope, (3, channels, 1, 1)) * random.uniform(0.5, 1.0, (3, channels, 1, 1))
    noise = random.integers(0, 256, (3, channels, size, size))
    return torch.from_numpy(np.concatenate([smooth, noise, np.full((1, channels, size, size), 77)])).to(torch.uint8)


def by_pillow(name: str, image: Tensor, strength: float) -> Tensor:
    array = image.permute(1, 2, 0).numpy()
    shown = Image.fromarray(array[..., 0] if array.shape[-1] == 1 else array)
    result = np.asarray(PILLOW[name](shown, strength))
    return torch.from_numpy(result.copy()).view(*image.shape[1:], -1).permute(2, 0, 1)


@pytest.mark.parametrize(("channels", "size"), [(1, 8), (3, 32), (3, 33)])
@pytest.mark.parametrize("name", OPERATIONS)
def test_it_is_pillows(name: str, channels: int, size: int) -> None:
    images = pictures(channels, size)
    for strength in STRENGTHS:
        result = OPERATIONS[name](images, torch.full((len(images),), strength, dtype=torch.double))
        expected = torch.stack([by_pillow(name, image, strength) for image in images])
        assert result.dtype == torch.uint8
        difference = (result.int() - expected.int()).abs()
        if (
            name in MOVED
        ):  # Pillow counts places in steps of 1 / 65536, and is at another pixel where one is between two
            assert (difference > 0).double().mean() < 0.01, strength
        else:
            assert difference.max() <= (1 if name == "sharpness" else 0), strength


@settings(deadline=None)
@given(st.sampled_from(sorted(OPERATIONS)), st.lists(st.floats(-1, 1), min_size=7, max_size=7))
def test_an_image_is_changed_alike_in_any_company(name: str, strengths: list[float]) -> None:
    images, strength_of_each = pictures(3, 9), torch.tensor(strengths, dtype=torch.double)
    together = OPERATIONS[name](images, strength_of_each)
    for at in range(len(images)):
        assert torch.equal(OPERATIONS[name](images[at : at + 1], strength_of_each[at : at + 1])[0], together[at])
