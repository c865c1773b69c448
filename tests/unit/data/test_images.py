import ast
import io
import struct
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image

from tests import ROOT
from understudy.data.images import FORMATS, decode, is_transparent, pixels


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


@pytest.mark.parametrize("kind", [*FORMATS, "DDS"])
def test_a_damaged_image_raises_nothing_but_valueerror(picture, kind):
    content, random = picture(0, kind=kind, size=(24, 24)), np.random.default_rng(0)
    with pytest.raises(ValueError, match="cannot be decoded"):
        decode(content[:20])
    for _ in range(200):
        damaged = bytearray(content)
        for offset in random.integers(0, len(content), 3):
            damaged[offset] = random.integers(256)
        try:
            decode(bytes(damaged[: random.integers(1, len(content) + 1)]))
        except ValueError:
            continue


@pytest.mark.parametrize("kind", ["DDS", "EPS", "ICNS", "ICO", "PCX", "SGI", "TGA"])
def test_what_is_no_format_of_the_list_is_refused_by_content(kind):
    with pytest.raises(ValueError, match="it is none of AVIF, BMP, GIF, JPEG, JPEG2000, PNG, PPM, TIFF, WEBP"):
        decode(encoded(Image.new("RGB", (64, 64)), kind))


def test_the_formats_need_no_other_program(tmp_path):
    """A process that may not start another one reads an image of each, and refuses PostScript."""
    for kind in (*FORMATS, "EPS"):
        (tmp_path / kind).write_bytes(encoded(Image.new("RGB", (16, 16)), kind))
    script = """
import pathlib, sys
from understudy.data.images import FORMATS, decode
def refuse(event, arguments):
    assert event not in ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.system", "os.fork"), (event, arguments)
sys.addaudithook(refuse)
for kind in FORMATS:
    assert decode(pathlib.Path(kind).read_bytes()).size == (16, 16)
try:
    decode(pathlib.Path("EPS").read_bytes())
except ValueError as error:
    print(error)
"""
    out = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert out.stdout.startswith("cannot be decoded as an image (it is none of")


def test_all_code_that_opens_images_names_the_formats():
    """The served model decodes with images.py itself, and has no other call."""
    calls = [
        (path.name, {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}.get("formats"))
        for path in (ROOT / "src/understudy").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("Image.open", "PIL.Image.open", "ImageFile.Parser")
    ]
    assert sorted(calls) == [("images.py", "FORMATS"), ("survey.py", "FORMATS")]


TAGS = (0x10F, 0x110, 0x11A, 0x128, 0x132, 0x8769, 0x8825, 0x9000, 0x9204)
ORIENTATION = struct.pack("<HHI4s", 0x112, 3, 1, struct.pack("<HH", 6, 0))


def with_exif(payload):
    """A JPEG of 4 x 2 pixels, black above white, with these bytes for its EXIF."""
    content = encoded(Image.fromarray(np.repeat(np.array([[0], [255]], np.uint8), 4, 1)), "JPEG")
    return content[:2] + b"\xff\xe1" + struct.pack(">H", len(payload) + 2) + payload + content[2:]


@given(
    entries=st.lists(  # tag, type, count, value or where it is
        st.tuples(
            st.sampled_from(TAGS) | st.integers(0, 65535),
            st.integers(1, 13),  # a type; 13 is none
            st.integers(0, 4) | st.integers(0, 2**32 - 1),
            st.binary(min_size=4, max_size=4),
        ),
        max_size=4,
    ),
    tail=st.binary(max_size=40),
    cut=st.integers(0, 20),
)
def test_odd_exif_costs_nobody_sound_pixels(entries, tail, cut):
    entries_without_orientation = b"".join(struct.pack("<HHI4s", *entry) for entry in entries if entry[0] != 0x112)
    count = sum(entry[0] != 0x112 for entry in entries) + 1
    body = (
        b"Exif\0\0II*\0"
        + struct.pack("<IH", 8, count)
        + ORIENTATION
        + entries_without_orientation
        + struct.pack("<I", 0)
        + tail
    )
    assert decode(with_exif(body)).size == (2, 4)
    for broken in (body[: len(body) - cut], body[:cut]):
        assert decode(with_exif(broken)).size in ((2, 4), (4, 2))


@pytest.mark.parametrize("mode", ["LAB", "YCbCr", "RGBX", "CMYK"])
def test_what_can_be_decoded_can_be_made_into_pixels(mode):
    content = encoded(Image.new(mode, (4, 4)), "TIFF")
    assert decode(content).mode in ("L", "LA", "RGB", "RGBA")
    for channels in (1, 3):
        assert pixels(content, 4, channels).shape == (channels, 4, 4)


@given(arrays.arrays(np.uint8, (4, 4, 4)), st.sampled_from([("white", 255), ("black", 0)]))
def test_a_transparent_image_lies_on_its_background(values, background):
    name, level = background
    alpha = values[..., 3:] / 255
    content = encoded(Image.fromarray(values))
    expected = values[..., :3] * alpha + level * (1 - alpha)
    assert abs(pixels(content, 4, 3, name).transpose(1, 2, 0) - expected).max() <= 1
    assert is_transparent(decode(content)) == bool((values[..., 3] < 255).any())


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "I;16"])
def test_a_colour_that_stands_for_transparency_is_transparent(mode):
    values = np.random.default_rng(0).integers(0, 2, (4, 4)).astype(np.uint8)
    values[0, 0], values[0, 1] = 0, 1
    image = {
        "1": Image.fromarray(values * 255).convert("1"),
        "L": Image.fromarray(values * 200),
        "P": Image.fromarray(values * 200).convert("P"),
        "RGB": Image.fromarray(np.stack([values * 200] * 3, 2)),
        "I;16": Image.fromarray(values.astype(np.uint16) * 51400),
    }[mode]
    key = {"RGB": (0, 0, 0)}.get(mode, image.getpixel((0, 0)))
    content = encoded(image, transparency=key)
    opaque = 255 if mode == "1" else 200
    np.testing.assert_array_equal(pixels(content, 4, 1)[0], np.where(values, opaque, 255))
    np.testing.assert_array_equal(pixels(content, 4, 3, "black")[0], np.where(values, opaque, 0))
    assert is_transparent(decode(content))
