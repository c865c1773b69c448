"""understudy init; tests/full/test_init.py runs the recipes that it writes."""

import os
import resource
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image
from scipy.stats import binom

from tests import ROOT
from tests.unit.cli.conftest import Command
from understudy.cli.first_recipe import text
from understudy.cli.init import Example
from understudy.data.survey import Images
from understudy.evaluate.intervals import paired_score
from understudy.evaluate.sufficiency import shortfalls
from understudy.recipe import Gate
from understudy.recipe.file import load
from understudy.recipe.tasks import load as load_task
from understudy.recipe.yaml import parse


def images(folder: Path, count: int, side: int = 30, labels: tuple[str, ...] = ("cat", "dog")) -> None:
    for number in range(count):
        path = folder / labels[number % len(labels)] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (side, side), (number, 0, 0)).save(path)


def texts(folder: Path, count: int) -> None:
    folder.mkdir(parents=True)
    for number in range(count):
        (folder / f"{number}.txt").write_text("a word " * 100)


def test_a_folder_of_images_becomes_a_recipe_that_is_right(understudy: Command) -> None:
    images(Path("My Pets"), 200)
    outcome = understudy("init", "My Pets")
    assert outcome.code == 0
    assert outcome.out.splitlines() == [
        "found in My Pets: 200 images in colour with 2 labels (cat, dog), 30 pixels wide or high",
        "note: few images: a gate with a margin of 0.2 lets a student pass that answers much worse than its teacher; "
        "with 445 in all, a margin of 0.1 would do",
        "wrote my-pets.yaml",
        "next: understudy recipe check my-pets.yaml; understudy plan my-pets.yaml (memory, time); "
        "understudy run my-pets.yaml",
    ]
    recipe = load(Path("my-pets.yaml"))
    assert (recipe.name, recipe.task) == ("my-pets", "image-classification")
    assert recipe.data.source.type == "image-folder"
    assert recipe.data.source.path == str(Path("My Pets").absolute())  # type: ignore[attr-defined]
    assert (recipe.image.size, recipe.image.channels) == (28, 3)
    assert recipe.gate.margin == 0.2  # 40 test images cannot show less
    assert understudy("recipe", "check", "my-pets.yaml").code == 0


def test_a_folder_of_texts_becomes_a_recipe_with_enough_to_test_on(understudy: Command) -> None:
    texts(Path("books/novels"), 120)
    assert understudy("init", "books/novels", "-o", "books/first.yaml").code == 0
    recipe = load(Path("books/first.yaml"))
    assert recipe.data.source.path == str(Path("books/novels").absolute())  # type: ignore[attr-defined]
    assert 120 * recipe.data.test > 36
    assert 'path: "novels"' in Path("books/first.yaml").read_text()
    assert understudy("recipe", "check", "books/first.yaml").code == 0


@pytest.mark.parametrize("side", [5, 8, 11, 12, 16, 17, 28, 63, 500])
def test_images_of_any_size_get_a_model_that_can_be_built(understudy: Command, side: int) -> None:
    import torch

    from understudy.models.describe import describe

    images(Path("images"), 60, side)
    assert understudy("init", "images").code == 0
    recipe = load(Path("images.yaml"))
    shape = recipe.image.model_dump()
    facts = {"task": recipe.task, "labels": ["a", "b"], "image": shape, "mean": [0.5] * 3, "std": [0.5] * 3}
    for path, model in recipe.models.items():
        from understudy.models.build import build_model

        built = build_model(describe(model, facts, path))
        pixels = torch.zeros((2, shape["channels"], shape["size"], shape["size"]), dtype=torch.uint8)
        assert built(pixels).logits.shape == (2, 2)


def test_as_many_images_as_it_takes_are_enough(understudy: Command) -> None:
    images(Path("images"), 55)
    assert understudy("init", "images").code == 0
    assert understudy("recipe", "check", "images.yaml").code == 0


def seen(train: int, test: int | None) -> Images:
    return Images(("cat", "dog"), train, test, side=32, channels=3, unread="", is_deep=False)


def passes(examples: int, margin: float, differing: float) -> float:
    """In how many of 400 test splits a student passes that is as good as its teacher, by the gate's own interval."""
    drawn = np.random.default_rng(0).multinomial(examples, [differing / 2, differing / 2, 1 - differing], size=400)
    kinds, counts = np.unique(drawn[:, :2], axis=0, return_counts=True)
    within = [paired_score(int(wins), int(losses), examples, 0.95)[0] >= -margin for wins, losses in kinds]
    return float(np.average(within, weights=counts))


@given(train=st.integers(55, 20_000), test=st.none() | st.integers(5, 5_000))
@example(train=1797, test=None)  # the digits
def test_the_test_split_can_show_the_margin(train: int, test: int | None) -> None:
    gate = yaml.safe_load(text(seen(train, test), "pets", "pets", "pets.yaml"))["gate"]
    # Of a share that goes by content there are fewer in one of forty splits.
    examples = test or int(binom.ppf(0.025, train, 0.2))
    assert not list(shortfalls(load_task("image-classification"), "accuracy", Gate(**gate), examples))
    assert passes(examples, gate["margin"], differing=0.05) > 0.7, "of 24 images one is four points"


def test_what_is_not_read_and_what_lies_deeper_is_said(understudy: Command) -> None:
    images(Path("images"), 450)
    images(Path("images/dog"), 2)
    Path("images/cat/1.heic").touch()
    outcome = understudy("init", "images")
    assert [line for line in outcome.out.splitlines() if line.startswith("note: ")] == [
        "note: not read: 1 x .heic",
        "note: images in deeper folders have the label of the first one",
    ]


def test_a_file_that_is_there_is_not_overwritten(understudy: Command) -> None:
    images(Path("images"), 60)
    Path("images.yaml").write_text("mine")
    outcome = understudy("init", "images")
    assert (outcome.code, Path("images.yaml").read_text()) == (2, "mine")
    assert "images.yaml: exists already, and is not overwritten; give another file with -o" in outcome.err
    outcome = understudy("init", "images", "-o", "no/such/folder.yaml")
    assert outcome.code == 2
    assert "cannot be written (No such file" in outcome.err


def test_a_recipe_that_cannot_be_written_leaves_no_file(understudy: Command) -> None:
    images(Path("images"), 60)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        outcome = understudy("init", "images")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (outcome.code, "cannot be written (File too large)" in outcome.err) == (2, True)
    assert not Path("images.yaml").exists()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda folder: images(folder, 54),
            "54 images are too few: a fifth of them, more or less, is tested on, and a gate takes 5 for that; with 55",
        ),
        (
            lambda folder: (images(folder / "train", 50), images(folder / "test", 4)),
            "4 images to test on are too few: it takes 5",
        ),
        (lambda folder: texts(folder, 1), "1 documents (*.txt), 0.0007 MB of text: too few, since the gate compares"),
        (lambda folder: folder.mkdir(), "contains no images and no texts"),
    ],
)
def test_too_little_is_refused_and_leaves_nothing(
    understudy: Command, make: Callable[[Path], object], message: str
) -> None:
    make(Path("data"))
    outcome = understudy("init", "data")
    assert outcome.code == 2
    assert message in outcome.err
    assert not Path("data.yaml").exists()


def test_a_name_that_is_not_utf_8_is_refused_and_leaves_nothing(understudy: Command) -> None:
    name = os.fsdecode(b"caf\xe9")
    images(Path("images"), 60)
    images(Path(name), 60)
    for arguments in (("images", "-o", f"{name}.yaml"), (name, "-o", "recipe.yaml")):
        outcome = understudy("init", *arguments)
        assert outcome.code == 2
        assert r"caf\udce9" in outcome.err
        assert "the name is not UTF-8" in outcome.err
    assert list(Path().glob("*.yaml")) == []


def test_a_recipe_behind_a_link_finds_its_data(understudy: Command) -> None:
    images(Path("far/images"), 60)
    Path("far/recipes").mkdir()
    Path("link").symlink_to("far/recipes")
    assert understudy("init", "far/images", "-o", "link/r.yaml").code == 0
    source = load(Path("link/r.yaml")).data.source
    assert source.path == str(Path("far/images").absolute())  # type: ignore[attr-defined]


NAMES = [
    ("null", "null"),
    ("2024", "data-2024"),
    ("ß", "data"),
    ("x", "data-x"),
    ("A_b", "a-b"),
    ("y" * 60, "y" * 40),
]


@pytest.mark.parametrize(("folder", "name"), NAMES)
def test_any_name_of_a_folder_gives_a_name_of_a_recipe(understudy: Command, folder: str, name: str) -> None:
    images(Path(folder), 60, labels=("x\ny: [", "z"))
    outcome = understudy("init", folder)
    assert outcome.code == 0, outcome.err
    path = Path(f"{name}.yaml")
    assert load(path).name == name
    assert not parse(path.read_text()).problems


def test_labels_that_look_like_splits_are_noted_where_a_recipe_is_made_and_checked(understudy: Command) -> None:
    images(Path("images"), 300, labels=("train", "plane"))
    noted = "note: called like a split, and read as any other label: train/"
    assert noted in understudy("init", "images").out.splitlines()
    assert noted in understudy("recipe", "check", "images.yaml").out.splitlines()


def test_splits_under_other_names_are_splits(understudy: Command) -> None:
    for folder, count in (("training", 60), ("testing", 40)):
        images(Path("mnist") / folder, count, labels=("0", "1"))
    assert "found in mnist: 60 to train on and 40 to test on images" in understudy("init", "mnist").out


def test_labels_that_differ_in_case_alone_are_noted(understudy: Command) -> None:
    images(Path("images"), 300, labels=("Cat", "cat", "dog"))
    assert "note: labels that may be meant to be one: Cat, cat" in understudy("init", "images").out.splitlines()


RECIPES = ROOT / "recipes"


def test_every_example_recipe_is_offered() -> None:
    assert sorted(Example) == sorted(path.stem for path in RECIPES.glob("*.yaml"))


@pytest.mark.parametrize("example", Example)
def test_an_example_is_written_as_it_is_and_never_over_another_file(understudy: Command, example: Example) -> None:
    outcome = understudy("init", "--example", example)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.splitlines()[1:] == [
        f"wrote {example}.yaml",
        f"next: understudy recipe check {example}.yaml; understudy plan {example}.yaml (memory, time); "
        f"understudy run {example}.yaml",
    ]
    assert Path(f"{example}.yaml").read_bytes() == (RECIPES / f"{example}.yaml").read_bytes()
    again = understudy("init", "--example", example)
    assert again.code == 2
    assert f"{example}.yaml: exists already" in again.err


def test_an_example_and_a_folder_are_not_both_taken(understudy: Command) -> None:
    outcome = understudy("init", "pictures", "--example", "digits")
    assert outcome.code == 2
    assert "--example digits: is not for a folder; leave pictures out" in outcome.err
    assert not Path("digits.yaml").exists()
