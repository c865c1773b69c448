"""Checks of the records before prepare runs; data/test_prepare.py tests its examples."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from understudy.errors import InputError
from understudy.launch.local.platform import LocalPlatform
from understudy.recipe import Recipe
from understudy.steps import steps_of
from understudy.steps.execution import execute
from understudy.steps.prepare import _labels_problem
from understudy.store import Store

Checked = Callable[..., None]


@pytest.fixture
def checked(
    store: Store, digits: Recipe, change: Callable[..., Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Checked:
    """Ingest so many images by label and split, and check what came of them."""
    monkeypatch.setattr(LocalPlatform, "prepare", lambda *_: None)

    def check(counts: dict[str, int], *overrides: str) -> None:
        random = np.random.default_rng(0)
        for folder, count in counts.items():
            (tmp_path / "images" / folder).mkdir(parents=True)
            for number in range(count):
                pixels = random.integers(0, 256, (4, 4), dtype=np.uint8)
                Image.fromarray(pixels).save(tmp_path / "images" / folder / f"{number}.png")
        recipe = change(digits, f"data.source={{type: image-folder, path: {tmp_path / 'images'}}}", *overrides)
        run = store.create_run("images", recipe.model_dump(mode="json", by_alias=True), "")
        records = execute(steps_of(recipe)["ingest"], store, run, {}, {}).digest
        steps_of(recipe)["prepare"].check(recipe, store, {"records": records})

    return check


HALF = {"train/cat": 3, "train/dog": 2, "test/cat": 20, "test/dog": 20}


def test_a_test_split_that_cannot_show_the_margin_is_refused_with_the_number_that_it_takes(checked: Checked) -> None:
    with pytest.raises(InputError, match=r"^gate\.margin: 40 test images .* it takes 73 or more"):
        checked(HALF)


def test_a_larger_share_of_too_few_records_is_not_advised(checked: Checked) -> None:
    with pytest.raises(
        InputError, match=r"it takes 73 or more, and the source has 45 records\. Give more data, or a la"
    ):
        checked(HALF)


def test_a_larger_share_of_enough_records_is(checked: Checked) -> None:
    with pytest.raises(InputError, match=r"it takes 73 or more\. Give more test data \(a larger data\.test"):
        checked({**HALF, "train/cat": 60})


def test_one_that_can_is_not(checked: Checked) -> None:
    checked(HALF, "gate.margin=0.1")


def test_a_test_split_of_nearly_one_label_is_refused(checked: Checked) -> None:
    with pytest.raises(InputError, match=r"^data\.test: 1 of 40 test images have another label"):
        checked({**HALF, "test/cat": 39, "test/dog": 1}, "gate.margin=0.1")


def test_of_two_labels_that_are_as_frequent_either_may_be_the_likeliest(checked: Checked) -> None:
    checked({**HALF, "train/dog": 3, "test/cat": 39, "test/dog": 1}, "gate.margin=0.1")


def copy_images(folder: Path, times: int) -> None:
    """Each test image so many times."""
    for path in list(folder.glob("test/*/*.png")):
        for number in range(times - 1):
            path.with_name(f"{path.stem} {number}.png").write_bytes(path.read_bytes())


def test_copies_of_test_images_prove_no_more_than_one(checked: Checked, tmp_path: Path) -> None:
    checked(HALF, "gate.margin=0.1")
    copy_images(tmp_path / "images", 5)
    with pytest.raises(InputError) as refused:
        checked({})
    assert str(refused.value).startswith("gate.margin: 40 test images cannot rule out")
    assert str(refused.value).endswith("Copies are counted once: 160 of the 200 test records are copies.")


def test_copies_of_a_rare_label_do_not_make_it_frequent(checked: Checked, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="1 of 40 test images have another label"):
        checked({**HALF, "test/cat": 39, "test/dog": 1}, "gate.margin=0.1")
    copy_images(tmp_path / "images", 5)
    with pytest.raises(InputError, match=r"1 of 40 test images have another label.*160 of the 200 test records"):
        checked({}, "gate.margin=0.1")


def test_a_training_that_has_nothing_to_validate_on_is_refused_before_any_is_trained(checked: Checked) -> None:
    everyone = [f"{section}.train.validate_every=5" for section in ("teacher", "student")]
    with pytest.raises(InputError) as refused:
        checked(HALF, "gate.margin=0.1", "data.validation=0", *everyone)
    why = "the data has no validation split; give it a share, data.validation"
    assert str(refused.value).splitlines() == [
        f"{section}.train.validate_every: {why}" for section in ("teacher", "student")
    ]


def test_without_validation_none_is_asked_for(checked: Checked) -> None:
    checked(HALF, "gate.margin=0.1", "data.validation=0")


@pytest.mark.parametrize(
    ("metric", "why"),
    [
        ("accuracy", ""),
        ("nll", ""),
        ("macro_f1", "30 test texts have the label no"),
        ("matthews", "30 test texts have"),
    ],
)
def test_a_rare_label_is_refused_before_training_if_the_metric_may_depend_on_it_alone(metric: str, why: str) -> None:
    learner = {"model": {"type": "bert", "config": {}}, "train": {"steps": 1}}
    data = {"source": {"type": "parquet", "path": "here"}}
    values = {"name": "here", "task": "text-classification", "data": data, "teacher": learner, "student": learner}
    recipe = Recipe.model_validate({**values, "gate": {"metric": metric}})
    counts = {("train", "no"): 90, ("train", "yes"): 95, ("test", "no"): 30, ("test", "yes"): 300}
    assert _labels_problem(recipe, counts, 330).startswith(why)
    assert bool(_labels_problem(recipe, counts, 330)) == bool(why)
