"""An encoded image's bytes to pixels; ingest checks images with what prepare reads them with."""

import io
import struct
import warnings

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

# What Pillow's decoders raise for damaged files.
_DAMAGE = (OSError, SyntaxError, ValueError, EOFError, struct.error, Image.DecompressionBombError)


def decode(content: bytes) -> Image.Image:
    """The first frame, upright, in 8 bits a channel.

    Raises:
        ValueError: it cannot be decoded, or its pixels have no fixed range.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # odd metadata is no concern of ours
        try:
            with Image.open(io.BytesIO(content)) as image:
                upright = ImageOps.exif_transpose(image)
                upright.load()
        except UnidentifiedImageError as error:  # its text holds an address in memory
            raise ValueError("cannot be decoded as an image (of no known format)") from error
        except _DAMAGE as error:
            raise ValueError(f"cannot be decoded as an image ({error})") from error
    if upright.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(upright) >> 8).astype(np.uint8))  # convert() would clip at 255
    if upright.mode in ("I", "F"):
        raise ValueError(f"has pixels of mode {upright.mode}, whose white level is unknown; save it in 8 bits")
    return upright


def pixels(content: bytes, size: int, channels: int) -> NDArray[np.uint8]:
    """The image as uint8 (channels, size, size); antialiased where it shrinks."""
    image = decode(content).convert("L" if channels == 1 else "RGB")
    if image.size != (size, size):
        image = image.resize((size, size), Image.Resampling.BILINEAR)
    array = np.asarray(image, dtype=np.uint8)
    return array[np.newaxis] if channels == 1 else array.transpose(2, 0, 1)
