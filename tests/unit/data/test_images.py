import io

import numpy as np
import pytest
from PIL import Image

from understudy.data.images import decode, pixels


def encoded(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def test_an_image_of_the_wanted_size_keeps_its_pixels(picture):
    content = picture(0, size=(7, 7))
    expected = np.asarray(Image.open(io.BytesIO(content)))
    np.testing.assert_array_equal(pixels(content, 7, 3).transpose(1, 2, 0), expected)


def test_shrinking_averages_instead_of_dropping_pixels():
    stripes = np.tile(np.array([[0, 255]], np.uint8), (64, 32))
    small = pixels(encoded(Image.fromarray(stripes)), 8, 1)
    assert small.shape == (1, 8, 8)
    assert abs(small.astype(float) - 127.5).max() < 20


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK"])
@pytest.mark.parametrize("channels", [1, 3])
def test_every_mode_becomes_the_wanted_channels(mode, channels):
    kind = "TIFF" if mode == "CMYK" else "PNG"
    assert pixels(encoded(Image.new(mode, (4, 4)), kind), 4, channels).shape == (channels, 4, 4)


def test_16_bit_greys_keep_their_high_byte():
    greys = np.array([[0, 0x1234], [0x8000, 0xFFFF]], np.uint16)
    np.testing.assert_array_equal(pixels(encoded(Image.fromarray(greys)), 2, 1)[0], greys >> 8)


def test_pixels_without_a_fixed_range_are_refused():
    with pytest.raises(ValueError, match="mode F"):
        decode(encoded(Image.new("F", (2, 2)), "TIFF"))


def test_a_photograph_is_turned_upright():
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was held on its side
    assert decode(encoded(Image.new("RGB", (4, 2)), "JPEG", exif=exif)).size == (2, 4)


def test_an_animation_gives_its_first_frame():
    frames = [Image.new("L", (3, 3), grey) for grey in (10, 200)]
    assert pixels(encoded(frames[0], "GIF", save_all=True, append_images=frames[1:]), 3, 1).max() == 10


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF"])
def test_a_damaged_image_raises_nothing_but_valueerror(picture, kind):
    content, random = picture(0, kind=kind, size=(24, 24)), np.random.default_rng(0)
    with pytest.raises(ValueError, match="cannot be decoded"):
        decode(content[:20])
    for _ in range(200):
        damaged = bytearray(content)
        for place in random.integers(0, len(content), 3):
            damaged[place] = random.integers(256)
        try:
            decode(bytes(damaged[: random.integers(1, len(content) + 1)]))
        except ValueError:
            continue
