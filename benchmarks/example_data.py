"""Five small data sets that need no network, three of images and two of text, each as a recipe to be completed.

digits    scikit-learn's handwritten digits
noisy     the same with noise on every pixel, so that no model comes near 100 %
letters   A to Z in the typefaces that matplotlib brings, shifted, turned and blurred
pydoc     the Python documentation that ships with the interpreter
packages  the descriptions of the packages that are installed beside understudy
"""

import string
from collections.abc import Callable, Mapping
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

VIT = {"num_attention_heads": 4, "patch_size": 2}
NO_DROPOUT = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
NOISE = 4.0  # standard deviation on pixels of 0 to 16
TYPEFACES, COPIES = 26, 4
WITHOUT_LETTERS = ("cmex", "cmsy", "cmmi", "Display", "NonUni", "SizS")


def recipe_of(name: str, folder: Path) -> dict[str, Any]:
    """A data set's recipe. Its records are written into the folder where the set is not built in.

    Args:
        name: one of SETS.
        folder: where files go; files of an earlier call are used.
    """
    source, prepare = SETS[name]
    path = folder / "records"
    if prepare and not path.exists():
        staged = folder / "staged"
        staged.mkdir(parents=True)
        prepare(staged)
        staged.rename(path)
    section = {"path": str(path)} if prepare else {}
    source_of = _text if name in TEXTS else _images
    return source_of(name, {"type": source, **section})


def _images(name: str, source: Mapping[str, str]) -> dict[str, Any]:
    size, epochs = (16, 30) if name == "letters" else (8, 20)
    patch = {"patch_size": size // 4}
    teacher = {"hidden_size": 64, "num_hidden_layers": 3, "intermediate_size": 128, **VIT, **patch}
    student = {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64, **VIT, **patch}
    return {
        "name": name,
        "task": "image-classification",
        "data": {"source": dict(source), "image": {"size": size, "channels": 1}, "test": 0.3},
        "teacher": {"model": {"type": "vit", "config": teacher}, "train": _train(1e-3, epochs=epochs)},
        "student": {"model": {"type": "vit", "config": student}, "train": _train(2e-3, epochs=epochs)},
    }


def _text(name: str, source: Mapping[str, str]) -> dict[str, Any]:
    teacher = {"n_embd": 128, "n_layer": 2, "n_head": 4, "n_positions": 64, **NO_DROPOUT}
    student = {**teacher, "n_embd": 64}
    text = {"sequence_length": 64, "tokenizer": {"vocab_size": 1024}}
    return {
        "name": name,
        "task": "causal-lm",
        "data": {"source": dict(source), "text": text},
        "teacher": {"model": {"type": "gpt2", "config": teacher}, "train": _train(3e-3, steps=400, batch_size=32)},
        "student": {"model": {"type": "gpt2", "config": student}, "train": _train(4e-3, steps=300, batch_size=32)},
    }


def _train(rate: float, **settings: int) -> dict[str, Any]:
    return {
        "batch_size": 64,
        "optimizer": {"learning_rate": rate, "weight_decay": 0.1},
        "schedule": {"warmup": 40},
        "checkpoint_every": 1_000_000,
        **settings,
    }


def _noisy(folder: Path) -> None:
    from sklearn.datasets import load_digits

    digits, random = load_digits(), np.random.default_rng(0)
    for number, (image, label) in enumerate(zip(digits.images, digits.target, strict=True)):
        pixels = image + random.normal(0.0, NOISE, image.shape)
        _write(folder / str(label) / f"{number:04}.png", pixels * 255 / 16)


def _letters(folder: Path) -> None:
    """Every letter in every typeface, several times."""
    from matplotlib import get_data_path
    from PIL import Image, ImageDraw, ImageFont

    random, files = np.random.default_rng(0), sorted(Path(get_data_path(), "fonts", "ttf").glob("*.ttf"))
    typefaces = [path for path in files if not any(part in path.stem for part in WITHOUT_LETTERS)]
    for path in typefaces[:TYPEFACES]:
        font = ImageFont.truetype(str(path), 14)
        for letter in string.ascii_uppercase:
            for copy in range(COPIES):
                canvas = Image.new("L", (24, 24))
                ImageDraw.Draw(canvas).text((6 + random.normal(), 3 + random.normal()), letter, fill=255, font=font)
                turned = canvas.rotate(random.normal(0, 5), resample=Image.Resampling.BILINEAR)
                pixels = np.asarray(turned.resize((16, 16)), dtype=np.float64) + random.normal(0, 20, (16, 16))
                _write(folder / letter / f"{path.stem}-{copy}.png", pixels)


def _write(path: Path, pixels: NDArray[np.float64]) -> None:
    from PIL import Image

    path.parent.mkdir(exist_ok=True)
    Image.fromarray(pixels.round().clip(0, 255).astype(np.uint8)).save(path)


def _packages(folder: Path) -> None:
    """The long description of each installed distribution, a document each."""
    for distribution in distributions():
        name, described = distribution.metadata["Name"], distribution.metadata.json.get("description", "")
        if len(described) > 1000:
            (folder / f"{name}.txt").write_text(str(described)[:20_000], encoding="utf-8")


SETS: dict[str, tuple[str, Callable[[Path], None] | None]] = {
    "digits": ("digits", None),
    "noisy": ("image-folder", _noisy),
    "letters": ("image-folder", _letters),
    "pydoc": ("python-docs", None),
    "packages": ("text-files", _packages),
}
"""Each set's source, and the function that writes its files unless it is built in."""
TEXTS = ("pydoc", "packages")
