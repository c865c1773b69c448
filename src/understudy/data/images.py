"""Decoding of images; ingest checks images with the decoder that prepare reads them with.

A registered version contains this file, so it imports nothing of understudy.
"""

import io
import struct
import warnings
import zlib

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageCms, UnidentifiedImageError

# Pillow detects a format by content and not by the file's name, and its PostScript reader starts Ghostscript: data
# must not start a program. All of these are decoded inside this process.
FORMATS = ("AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")

# Errors of Python and Pillow. A decoder of damaged bytes raises anything that its code runs into: RuntimeError in
# AVIF, NotImplementedError in DDS, TypeError and AttributeError for EXIF values of other types than their tags have.
DAMAGE = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    BufferError,
    EOFError,
    ImportError,
    LookupError,
    MemoryError,
    NameError,
    OSError,
    RuntimeError,
    SyntaxError,
    SystemError,
    TypeError,
    ValueError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
    ImageCms.PyCMSError,
)

UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""The transposition for each EXIF orientation but 1, the upright one (CIPA DC-008, 4.6.5)."""

BACKGROUNDS = {"white": 255, "black": 0}
"""Grey levels of the background of a transparent image."""


def decode(content: bytes) -> Image.Image:
    """Decode the first frame, upright, in 8 bits a channel: L or RGB, with an alpha channel (LA, RGBA) if it has one.

    Raises:
        ValueError: it cannot be decoded, or its pixels have no fixed range.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # odd metadata does not matter
        try:
            with Image.open(io.BytesIO(content), formats=FORMATS) as image:
                image.load()
                upright = _upright(image)
            if upright.mode not in ("I", "F"):
                return _eight_bits(upright)
        except UnidentifiedImageError as error:  # its text has an address in memory
            raise ValueError(f"cannot be decoded as an image (it is none of {', '.join(FORMATS)})") from error
        except DAMAGE as error:
            raise ValueError(f"cannot be decoded as an image ({error or type(error).__name__})") from error
    raise ValueError(f"has pixels of mode {upright.mode}, whose white level is unknown; save it in 8 bits")


def pixels(content: bytes, size: int, channels: int, background: str = "white") -> NDArray[np.uint8]:
    """The image as uint8 (channels, size, size), on its background; antialiased when reduced."""
    image = _opaque(decode(content), BACKGROUNDS[background]).convert("L" if channels == 1 else "RGB")
    if image.size != (size, size):
        image = image.resize((size, size), Image.Resampling.BILINEAR)
    array = np.asarray(image, dtype=np.uint8)
    return array[np.newaxis] if channels == 1 else array.transpose(2, 0, 1)


def is_transparent(image: Image.Image) -> bool:
    """Whether the background of a decoded image is visible anywhere."""
    return image.has_transparency_data and image.getchannel("A").getextrema() != (255, 255)


def _upright(image: Image.Image) -> Image.Image:
    """The image rotated as in its EXIF orientation. No other EXIF value is read: they may have any type."""
    try:
        orientation = image.getexif().get(ExifTags.Base.Orientation)
    except DAMAGE:  # unreadable EXIF values do not affect the pixels
        orientation = None
    turn = UPRIGHT.get(orientation) if isinstance(orientation, int) else None
    return image.copy() if turn is None else image.transpose(turn)


def _eight_bits(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I;16"):
        return _high_bytes(image)
    grey = image.mode in ("1", "L", "LA", "La")
    if image.has_transparency_data:
        return image.convert("LA" if grey else "RGBA")
    return image.convert("L" if grey else "RGB")


def _high_bytes(image: Image.Image) -> Image.Image:
    """A grey image of 16 bits in 8; convert() would clip at 255."""
    values, transparent = np.asarray(image), image.info.get("transparency")
    grey = Image.fromarray((values >> 8).astype(np.uint8))
    if transparent is not None:
        grey.putalpha(Image.fromarray(np.where(values == transparent, 0, 255).astype(np.uint8)))
    return grey


def _opaque(image: Image.Image, level: int) -> Image.Image:
    if not image.has_transparency_data:
        return image
    behind = Image.new(image.mode, image.size, (level,) * (len(image.mode) - 1) + (255,))
    grey = image.mode == "LA"
    composed = Image.alpha_composite(behind.convert("RGBA"), image.convert("RGBA"))
    return composed.convert("L" if grey else "RGB")
