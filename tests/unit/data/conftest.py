import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from understudy.data.ingest import ingest
from understudy.recipe import TaskName
from understudy.recipe.data import Data

Picture = Callable[..., bytes]
Ingested = Callable[..., Path]


@pytest.fixture
def picture() -> Picture:
    """An encoded image of noise; the same for the same seed."""

    def make(seed: int, *, kind: str = "PNG", size: tuple[int, int] = (6, 5)) -> bytes:
        pixels = np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)
        stream = io.BytesIO()
        Image.fromarray(pixels).save(stream, kind)
        return stream.getvalue()

    return make


@pytest.fixture
def image_folder(tmp_path: Path, picture: Picture) -> Path:
    """Two labels, 20 images each, without splits of its own."""
    root = tmp_path / "images"
    for seed in range(40):
        path = root / ("cat", "dog")[seed % 2] / f"{seed:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(seed))
    return root


@pytest.fixture
def text_folder(tmp_path: Path) -> Path:
    """30 documents of a few words each."""
    root = tmp_path / "texts"
    root.mkdir()
    for number in range(30):
        (root / f"{number:02}.txt").write_text(f"document number {number} says hello hello to the world\n" * 3)
    return root


@pytest.fixture
def ingested(tmp_path_factory: pytest.TempPathFactory) -> Ingested:
    """Ingest into a fresh folder."""

    def run(source: dict[str, Any], task: TaskName = "image-classification", **data: Any) -> Path:
        folder = tmp_path_factory.mktemp("records")
        ingest(Data.model_validate({"source": source, **data}), task, folder, lambda done, total: None)
        return folder

    return run
