"""How long a training is that counts epochs, against what ingest makes of the same data."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from tests import ROOT
from understudy.data.ingest import ingest
from understudy.plan.length import steps_of, training_examples
from understudy.recipe import Recipe
from understudy.recipe.file import load


def images(folder: Path, splits: dict[str, int]) -> dict[str, object]:
    for split, count in splits.items():
        for number in range(count):
            path = folder / split / "ab"[number % 2] / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (4, 4), (number, len(split), 0)).save(path)
    return {"type": "image-folder", "path": str(folder)}


SOURCES: list[Callable[[Path], dict[str, object]]] = [
    lambda _: {"type": "digits"},
    lambda folder: images(folder, {"": 250}),
    lambda folder: images(folder, {"test": 40, "train": 90}),
    lambda folder: images(folder, {"test": 40, "train": 90, "validation": 30}),
]


def recipe(**data: object) -> Recipe:
    values = load(ROOT / "recipes/digits.yaml").model_dump(by_alias=True, mode="json")
    return Recipe.model_validate(values | {"data": values["data"] | data}, by_alias=True)


@pytest.mark.parametrize("shares", [{"test": 0.2}, {"test": 0.3, "validation": 0.1}])
@pytest.mark.parametrize("source", SOURCES)
def test_as_many_images_as_ingest_gives_to_train_on(
    source: Callable[[Path], dict[str, object]], shares: dict[str, float], tmp_path: Path
) -> None:
    with_source = recipe(source=source(tmp_path / "data"), **shares)
    (tmp_path / "records").mkdir()
    ingest(with_source.data, with_source.task, tmp_path / "records", lambda *_: None)
    counts = json.loads((tmp_path / "records" / "records.json").read_text())["counts"]
    assert training_examples(with_source) == pytest.approx(counts["train"], rel=0.1)


def test_texts_are_sequences_of_about_three_bytes_a_token(tmp_path: Path) -> None:
    drawn = random.Random(0)
    (tmp_path / "texts").mkdir()
    for number in range(200):
        (tmp_path / "texts" / f"{number}.txt").write_text("w" * drawn.randrange(300, 900))
    values = load(ROOT / "recipes/pydoc.yaml").model_dump(by_alias=True, mode="json")
    data = {**values["data"], "source": {"type": "text-files", "path": str(tmp_path / "texts")}, "test": 0.25}
    with_source = Recipe.model_validate(values | {"data": data}, by_alias=True)
    length = sum(path.stat().st_size for path in (tmp_path / "texts").iterdir())
    assert training_examples(with_source) == pytest.approx(0.75 * length / 3 / with_source.text.sequence_length, abs=1)


def test_steps_are_whole_batches_of_each_epoch_and_unknown_where_the_data_is_elsewhere(tmp_path: Path) -> None:
    train = load(ROOT / "recipes/digits.yaml").student.train
    assert steps_of(train, 1438) == 40 * 23
    assert steps_of(train, 3) == 40
    assert steps_of(train, None) is None
    assert steps_of(train.model_copy(update={"epochs": None, "steps": 7}), None) == 7
    assert training_examples(recipe(source={"type": "image-folder", "path": str(tmp_path / "no")})) is None
