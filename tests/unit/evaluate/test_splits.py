import hashlib
import io
import json

import numpy as np
import pytest
from PIL import Image as Picture

from understudy.data.image_arrays import write_images
from understudy.data.records import Content, Record, write
from understudy.errors import InputError
from understudy.evaluate.splits import splits_by_role
from understudy.recipe import Image

FACTS = {
    "task": "image-classification",
    "labels": ["a", "b"],
    "image": {"size": 4, "channels": 1},
    "mean": [0.5],
    "std": [0.2],
}


def encoded(seed):
    stream = io.BytesIO()
    Picture.fromarray(np.random.default_rng(seed).integers(0, 256, (9, 9), dtype=np.uint8)).save(stream, "PNG")
    return stream.getvalue()


@pytest.fixture
def records(tmp_path):
    """Ten images, of which every other is for the test."""
    folder = tmp_path / "records"
    folder.mkdir()
    contents = sorted((encoded(seed) for seed in range(10)), key=lambda content: hashlib.sha256(content).hexdigest())
    splits = ("train", "test")
    rows = [
        Record(hashlib.sha256(content).hexdigest(), splits[n % 2], "ab"[n // 2 % 2], content)
        for n, content in enumerate(contents)
    ]
    write(folder / "records.parquet", rows)
    return folder, [Content(row.split, row.label, row.content) for row in rows if row.split == "test"]


@pytest.fixture
def examples(tmp_path, records):
    folder = tmp_path / "examples"
    folder.mkdir()
    (folder / "examples.json").write_text(json.dumps(FACTS))
    write_images(records[1], ["a", "b"], Image(size=4, channels=1), ("test",), folder)
    return folder


def model(**changes):
    return {**FACTS, "kind": "transformers", "config": {}, **changes}


def test_a_model_of_this_runs_shape_sees_the_examples_and_needs_no_records(tmp_path, examples):
    models = {role: model() for role in ("teacher", "student", "champion")}
    with splits_by_role(models, examples, None, tmp_path) as splits:
        assert all(np.array_equal(split.inputs, splits["teacher"].inputs) for split in splits.values())
        assert len(splits["teacher"].tokens) == 5


@pytest.mark.parametrize("image", [{"size": 8, "channels": 1}, {"size": 4, "channels": 3}, {"size": 2, "channels": 1}])
def test_a_champion_of_another_shape_sees_the_same_records_as_its_own_run_would_have_made_them(
    tmp_path, examples, records, image
):
    (tmp_path / "its").mkdir()
    write_images(records[1], ["a", "b"], Image(**image), ("test",), tmp_path / "its")
    models = {"teacher": model(), "champion": model(image=image)}
    (tmp_path / "scratch").mkdir()
    with splits_by_role(models, examples, records[0], tmp_path / "scratch") as splits:
        np.testing.assert_array_equal(splits["champion"].inputs, np.load(tmp_path / "its" / "test.images.npy"))
        np.testing.assert_array_equal(splits["champion"].labels, splits["teacher"].labels)
        assert splits["teacher"].inputs.shape == (5, 1, 4, 4)
    assert list((tmp_path / "scratch").iterdir()) == []


def test_an_empty_test_split_is_refused(tmp_path, examples):
    np.save(examples / "test.labels.npy", np.zeros(0, dtype=np.int64))
    models = {"teacher": model()}
    with (
        pytest.raises(InputError, match=r"data\.test: the test split is empty"),
        splits_by_role(models, examples, None, tmp_path),
    ):
        pass
