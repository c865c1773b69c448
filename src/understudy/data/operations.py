"""The operations of RandAugment (Cubuk et al. 2020), on tensors, with the same results as Pillow's.

Their ranges are those of AutoAugment (Cubuk et al. 2019, table 6). At magnitude 0 each leaves an image unchanged,
except equalize and autocontrast, which have no magnitude.
"""

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

Operation = Callable[[Tensor, Tensor], Tensor]
"""From images, uint8 (B, C, S, S), and strengths, float64 (B,) from -1 to 1, to the changed images."""


def _moved(images: Tensor, matrices: Tensor) -> Tensor:
    """An affine transformation: the nearest source pixel, or black.

    Args:
        images: (B, C, S, S).
        matrices: (B, 2, 3); from a pixel's centre to x and y of its source.
    """
    size = images.shape[-1]
    middle = torch.arange(size, dtype=torch.double) + 0.5
    # No matrix product: its rounding depends on the number of matrices.
    of_x, of_y, shift = (part[..., None, None] for part in matrices.unbind(-1))
    columns, rows = (of_x * middle + of_y * middle[:, None] + shift).floor().long().unbind(1)
    inside = (columns >= 0) & (columns < size) & (rows >= 0) & (rows < size)
    places = (rows * size + columns).where(inside, 0).flatten(1)[:, None].expand(-1, images.shape[1], -1)
    return images.flatten(2).gather(2, places).view_as(images) * inside[:, None]


def _matrices(strength: Tensor, rows: list[list[Tensor | float]]) -> Tensor:
    return torch.stack(
        [torch.stack([torch.as_tensor(n, dtype=torch.double).expand_as(strength) for n in row], -1) for row in rows], 1
    )


def rotate(images: Tensor, strength: Tensor) -> Tensor:
    """Rotate by up to 30 degrees, around the centre."""
    angle, middle = strength * math.radians(30), images.shape[-1] / 2
    # One by one: torch's functions of many values have other last bits.
    cos = torch.tensor([math.cos(value) for value in angle.tolist()], dtype=torch.double)
    sin = torch.tensor([math.sin(value) for value in angle.tolist()], dtype=torch.double)
    # Pillow rotates counterclockwise; y goes down.
    return _moved(
        images,
        _matrices(
            strength,
            [[cos, -sin, middle - middle * cos + middle * sin], [sin, cos, middle - middle * sin - middle * cos]],
        ),
    )


def shear_x(images: Tensor, strength: Tensor) -> Tensor:
    """Shear along x by up to 0.3."""
    return _moved(images, _matrices(strength, [[1.0, 0.3 * strength, 0.0], [0.0, 1.0, 0.0]]))


def shear_y(images: Tensor, strength: Tensor) -> Tensor:
    """Shear along y by up to 0.3."""
    return _moved(images, _matrices(strength, [[1.0, 0.0, 0.0], [0.3 * strength, 1.0, 0.0]]))


def translate_x(images: Tensor, strength: Tensor) -> Tensor:
    """Translate along x by up to 150 / 331 of the size."""
    far = strength * (150 / 331 * images.shape[-1])
    return _moved(images, _matrices(strength, [[1.0, 0.0, far], [0.0, 1.0, 0.0]]))


def translate_y(images: Tensor, strength: Tensor) -> Tensor:
    """Translate along y by up to 150 / 331 of the size."""
    far = strength * (150 / 331 * images.shape[-1])
    return _moved(images, _matrices(strength, [[1.0, 0.0, 0.0], [0.0, 1.0, far]]))


def _blended(plain: Tensor, images: Tensor, strength: Tensor) -> Tensor:
    """Blend with a plain image, by a factor from 0.1 (at -1) to 1.9 (at 1, beyond the image itself)."""
    plain, factor = plain.float(), (1 + 0.9 * strength).float()[:, None, None, None]
    return images.float().sub_(plain).mul_(factor).add_(plain).clamp_(0, 255).to(torch.uint8)


def _grey(images: Tensor) -> Tensor:
    """Luma (B, 1, S, S), with the weights of ITU-R BT.601."""
    if images.shape[1] == 1:
        return images
    weights = torch.tensor([19595, 38470, 7471], dtype=torch.int32)[:, None, None]
    return (((images.int() * weights).sum(1, keepdim=True, dtype=torch.int32) + 0x8000) >> 16).to(torch.uint8)


def brightness(images: Tensor, strength: Tensor) -> Tensor:
    """Blend with black."""
    return _blended(torch.zeros_like(images), images, strength)


def color(images: Tensor, strength: Tensor) -> Tensor:
    """Blend with shades of grey."""
    return _blended(_grey(images), images, strength)


def contrast(images: Tensor, strength: Tensor) -> Tensor:
    """Blend with the image's mean grey."""
    mean = _grey(images).double().mean((1, 2, 3)).add(0.5).floor()
    return _blended(mean[:, None, None, None], images, strength)


def sharpness(images: Tensor, strength: Tensor) -> Tensor:
    """Blend with a smoothed image, whose outermost pixels are unchanged."""
    if images.shape[-1] < 3:
        return images
    smooth = images.float()
    rows = smooth[..., :-2] + smooth[..., 1:-1] + smooth[..., 2:]
    around = rows[..., :-2, :] + rows[..., 1:-1, :] + rows[..., 2:, :]
    # The sum of a pixel, counted five times, and those around it; whole numbers up to here.
    smooth[..., 1:-1, 1:-1] = around.add_(smooth[..., 1:-1, 1:-1], alpha=4).div_(13).add_(0.5).floor_()
    return _blended(smooth, images, strength)


def posterize(images: Tensor, strength: Tensor) -> Tensor:
    """Reduce 8 bits to as few as 4."""
    dropped_bits = (4 * strength.abs()).round().long()
    return images & (256 - 2**dropped_bits).to(torch.uint8)[:, None, None, None]


def solarize(images: Tensor, strength: Tensor) -> Tensor:
    """Invert pixels that are as bright as a threshold; the threshold falls from 256 to 0."""
    threshold = (256 * (1 - strength.abs()))[:, None, None, None]
    return images.where(images < threshold, 255 - images)


def _looked_up(images: Tensor, tables: Tensor) -> Tensor:
    """Map levels by (B, C, 256) tables."""
    return tables.clamp(0, 255).to(torch.uint8).gather(2, images.flatten(2).long()).view_as(images)


def autocontrast(images: Tensor, _strength: Tensor) -> Tensor:
    """Stretch each channel from black to white."""
    flat, levels = images.flatten(2).double(), torch.arange(256, dtype=torch.double)
    low, high = flat.amin(-1, keepdim=True), flat.amax(-1, keepdim=True)
    scale = torch.full_like(low, 255) / (high - low).clamp(min=1)  # in torch, number / tensor is number * (1 / tensor)
    return _looked_up(images, torch.where(high > low, levels * scale - low * scale, levels).trunc())


def equalize(images: Tensor, _strength: Tensor) -> Tensor:
    """Equalize the histogram of each channel, as far as possible."""
    count, channels = images.shape[:2]
    number = torch.arange(count * channels).view(count, channels, 1) * 256
    counts = torch.bincount((images.flatten(2).long() + number).flatten(), minlength=count * channels * 256)
    counts = counts.view(count, channels, 256)
    last = counts.gather(2, images.flatten(2).amax(-1, keepdim=True).long())
    step = (counts.sum(-1, keepdim=True) - last) // 255
    below = counts.cumsum(-1) - counts
    tables = (step // 2 + below) // step.clamp(min=1)
    return _looked_up(images, torch.where(step > 0, tables, torch.arange(256)))


def identity(images: Tensor, _strength: Tensor) -> Tensor:
    """Leave the images unchanged."""
    return images


OPERATIONS: Mapping[str, Operation] = {
    operation.__name__: operation
    for operation in (
        identity,
        autocontrast,
        equalize,
        rotate,
        solarize,
        color,
        posterize,
        contrast,
        brightness,
        sharpness,
        shear_x,
        shear_y,
        translate_x,
        translate_y,
    )
}
"""All fourteen, with equal probability."""
