"""scikit-learn's copy of the UCI digits, read from its package's folder: importing sklearn takes seconds."""

import gzip
import io
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from understudy.data.raw import Raw, Reading
from understudy.data.sources.source import DataSource
from understudy.errors import InputError
from understudy.recipe.sources import SourceSection
from understudy.recipe.tasks import Kind
from understudy.store.files import Fingerprints, hash_file

SIDE, WHITE = 8, 16


class DigitsSource(SourceSection):
    """scikit-learn's 1797 handwritten digits of 8 x 8 pixels; built in, no download."""

    type: Literal["digits"]


def read(_section: DigitsSource, _fields: Mapping[str, Kind]) -> Reading:
    """1797 grey PNGs of 8 x 8 pixels; the file's 0 to 16 become 0 to 255."""
    lines = gzip.decompress(_file().read_bytes()).decode().splitlines()
    return Reading(len(lines), (_record(row, line) for row, line in enumerate(lines)))


def digest(_section: DigitsSource, _fingerprints: Fingerprints) -> str:
    """The SHA-256 of their file."""
    return hash_file(_file())


def _record(row: int, line: str) -> Raw:
    *pixels, label = [int(float(value)) for value in line.split(",")]
    return Raw(f"{row:04}", _png(bytes(round(pixel * 255 / WHITE) for pixel in pixels)), str(label))


def _png(pixels: bytes) -> bytes:
    from PIL import Image

    stream = io.BytesIO()
    # Not compressed: the bytes, and so the split, do not depend on the version of a compressor.
    Image.frombytes("L", (SIDE, SIDE), pixels).save(stream, "PNG", compress_level=0)
    return stream.getvalue()


def _file() -> Path:
    spec = find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise InputError("data.source.type: digits needs scikit-learn. Install it: pip install scikit-learn")
    return Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz"


SOURCE = DataSource(DigitsSource, frozenset({"image", "label"}), read, digest)
