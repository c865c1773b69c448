import os
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from understudy.data.survey import Documents, Images, survey
from understudy.errors import InputError

Draw = Callable[..., None]


@pytest.fixture
def draw(tmp_path: Path) -> Draw:
    """Images of a size and mode, by their names below the folder."""

    def make(*names: str, size: tuple[int, int] = (9, 12), mode: str = "RGB") -> None:
        for name in names:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            Image.new(mode, size).save(tmp_path / name)

    return make


def test_images_are_counted_by_the_folders_that_are_their_labels(tmp_path: Path, draw: Draw) -> None:
    draw("cat/1.png", "cat/deep/2.png", "dog/3.PNG")
    draw("dog/4.png", size=(90, 80))
    (tmp_path / "dog" / "notes.txt").write_text("x")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "5.png").write_bytes(b"")
    assert survey(tmp_path) == Images(("cat", "dog"), 4, None, side=9, channels=3, unread="1 x .txt", is_deep=True)


def test_splits_of_its_own_are_counted(tmp_path: Path, draw: Draw) -> None:
    draw("train/a/1.png", "train/b/2.png", "val/a/3.png", "test/b/4.png", mode="L")
    assert survey(tmp_path) == Images(("a", "b"), 2, 1, side=9, channels=1, unread="", is_deep=False)


def test_images_below_a_labels_folder_are_deep_in_splits_too(tmp_path: Path, draw: Draw) -> None:
    draw("train/a/1.png", "train/b/2.png", "test/a/deeper/3.png")
    result = survey(tmp_path)
    assert isinstance(result, Images)
    assert result.is_deep


def test_a_split_of_its_own_may_be_the_only_one_if_it_can_be_trained_on(tmp_path: Path, draw: Draw) -> None:
    draw("train/a/1.png", "train/b/2.png")
    (tmp_path / "notes").mkdir()
    assert survey(tmp_path) == Images(("a", "b"), 2, None, side=9, channels=3, unread="", is_deep=False)
    (tmp_path / "train").rename(tmp_path / "test")
    with pytest.raises(InputError, match="no train/ to train on"):
        survey(tmp_path)


def test_links_count_where_they_stay_inside(tmp_path: Path, draw: Draw) -> None:
    draw("data/cat/1.png", "data/dog/2.png", "other/3.png")
    (tmp_path / "data" / "bird").symlink_to("dog")
    result = survey(tmp_path / "data")
    assert isinstance(result, Images)
    assert (result.labels, result.train) == (("bird", "cat", "dog"), 3)
    (tmp_path / "data" / "fish").symlink_to(tmp_path / "other")
    with pytest.raises(InputError, match=r"data/fish is a link that leads out of the folder"):
        survey(tmp_path / "data")


@pytest.mark.parametrize("parent", ["", "data"])
def test_names_that_no_recipe_can_hold_are_named(tmp_path: Path, draw: Draw, parent: str) -> None:
    folder = tmp_path / parent / os.fsdecode(b"caf\xe9")
    draw("a/1.png", "b/2.png", f"{folder.relative_to(tmp_path)}/a/3.png", f"{folder.relative_to(tmp_path)}/b/4.png")
    with pytest.raises(InputError, match=r"caf\\udce9.*the name is not UTF-8"):
        survey(folder if parent else tmp_path)


def test_texts_are_those_of_the_most_frequent_suffix(tmp_path: Path) -> None:
    for name in ("1.md", "deep/2.md", "3.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("four")
    assert survey(tmp_path) == Documents(".md", 2, None, length=8, unread="1 x .txt")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ((), "it is empty"),
        (("1.csv", "2.csv", "3"), r"contains no images and no texts .*; it has 2 x \.csv, 1 x no suffix"),
        (("a/1.png",), "all images lie in a/; a classifier needs two labels or more"),
        (("a/1.png", "b/1.png", "c/1.heic"), r"no images are in c/, and a folder is a label"),
        (("1.png", "a/1.png"), r"1\.png lies in no label's folder; put every image into <label>/"),
        (
            ("train/a/1.png", "test/1.png"),
            r"test/1\.png lies in .* put .* into train/<label>/ or test/<label>/",
        ),
        (("a/1.png", "b/1.png"), r"a/1\.png: cannot be opened as an image, nor can others"),
    ],
)
def test_what_no_recipe_can_be_made_of_is_said(tmp_path: Path, names: tuple[str, ...], message: str) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    with pytest.raises(InputError, match=message):
        survey(tmp_path)
    with pytest.raises(InputError, match="is not a folder"):
        survey(tmp_path / "nowhere")
