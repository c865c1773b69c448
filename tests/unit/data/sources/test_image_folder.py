import pytest

from tests.unit.data.sources.reading import records
from understudy.errors import InputError


def test_a_folder_of_images_is_labelled_by_its_sub_folders(image_folder):
    (image_folder / "cat" / "deeper").mkdir()
    (image_folder / "cat" / "00.png").rename(image_folder / "cat" / "deeper" / "00.PNG")
    images = records(type="image-folder", path=str(image_folder))
    assert len(images) == 40
    assert {raw.label for raw in images if raw.name.startswith("cat/")} == {"cat"}
    assert all(raw.split is None for raw in images)
    assert "cat/deeper/00.PNG" in {raw.name for raw in images}


def test_hidden_files_and_other_suffixes_do_not_count(image_folder):
    (image_folder / "cat" / "._00.png").write_bytes(b"a file that macOS creates")
    (image_folder / ".cache").mkdir()
    (image_folder / ".cache" / "x.png").write_bytes(b"")
    (image_folder / "README.md").write_text("about")
    assert len(records(type="image-folder", path=str(image_folder))) == 40


@pytest.mark.parametrize("held_out", [("test",), ("test", "val"), ("test", "validation"), ("val",)])
def test_train_and_test_folders_are_splits(tmp_path, picture, held_out):
    for seed, name in enumerate(("train", *held_out)):
        for label in ("a", "b"):
            (tmp_path / name / label).mkdir(parents=True)
            (tmp_path / name / label / "x.png").write_bytes(picture(seed))
    images = records(type="image-folder", path=str(tmp_path))
    names = {"val": "validation"}
    assert {(raw.name.split("/")[0], raw.split) for raw in images} == {
        (name, names.get(name, name)) for name in ("train", *held_out)
    }
    assert {raw.label for raw in images} == {"a", "b"}


@pytest.mark.parametrize("names", [("Train", "Test"), ("train", "valid"), ("TRAIN", "VAL")])
def test_splits_are_known_in_any_case_of_letters(tmp_path, picture, names):
    for name in names:
        for label in ("cat", "dog"):
            (tmp_path / name / label).mkdir(parents=True)
            (tmp_path / name / label / "0.png").write_bytes(picture(1))
    images = records(type="image-folder", path=str(tmp_path))
    assert {raw.label for raw in images} == {"cat", "dog"}
    assert {raw.split for raw in images} == {"train", "test" if names[1] == "Test" else "validation"}


def test_one_label_is_a_wrong_path(image_folder):
    with pytest.raises(InputError, match=rf"data\.source\.path: .*: all images lie in {image_folder.name}/; "):
        records(type="image-folder", path=str(image_folder.parent))


def test_a_labels_folder_without_images_is_named(image_folder):
    (image_folder / "star").mkdir()
    (image_folder / "heart").mkdir()
    (image_folder / "heart" / "0.heic").touch()
    with pytest.raises(
        InputError, match=r"data\.source\.path: .*: no images are in heart/, star/, and a folder is a label"
    ):
        records(type="image-folder", path=str(image_folder))


def test_a_label_may_have_images_in_one_split_only(tmp_path, picture):
    for name in ("train/a", "train/b", "test/b"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "x.png").write_bytes(picture(1))
    (tmp_path / "test" / "a").mkdir()
    assert len(records(type="image-folder", path=str(tmp_path))) == 3


def test_labels_folders_may_be_links_inside_the_data(image_folder):
    (image_folder / "wolf").symlink_to(image_folder / "dog")
    images = records(type="image-folder", path=str(image_folder))
    assert sorted(raw.name for raw in images if raw.label == "wolf") == [f"wolf/{n:02}.png" for n in range(1, 40, 2)]
    assert len(images) == 60


def test_labels_folders_elsewhere_are_read_where_the_recipe_says_so(image_folder, tmp_path):
    subset = tmp_path / "subset"
    subset.mkdir()
    for label in ("cat", "dog"):
        (subset / label).symlink_to(image_folder / label)
    with pytest.raises(
        InputError, match=r"cat is a link that leads out of the folder, to .*/images/cat\. .*follow_links"
    ):
        records(type="image-folder", path=str(subset))
    images = records(type="image-folder", path=str(subset), follow_links=True)
    assert {raw.name: raw.content for raw in images} == {
        path.relative_to(image_folder).as_posix(): path.read_bytes() for path in image_folder.rglob("*.png")
    }


@pytest.mark.parametrize("name", ["train", "Train"])
def test_a_train_folder_alone_is_no_label(tmp_path, image_folder, name):
    image_folder.rename(tmp_path / name)
    (tmp_path / "data").mkdir()
    (tmp_path / name).rename(tmp_path / "data" / name)
    images = records(type="image-folder", path=str(tmp_path / "data"))
    assert {(raw.label, raw.split) for raw in images} == {("cat", "train"), ("dog", "train")}


def test_a_train_folder_of_images_without_labels_is_refused_with_the_fix(tmp_path, picture):
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "1.png").write_bytes(picture(1))
    with pytest.raises(InputError, match=r"train/1\.png lies in no label's folder\. Move it to <label>/ below train/"):
        records(type="image-folder", path=str(tmp_path))


@pytest.mark.parametrize("names", [("test",), ("val", "test")])
def test_splits_without_one_to_train_on_are_refused(tmp_path, picture, names):
    for name in names:
        (tmp_path / name / "cat").mkdir(parents=True)
        (tmp_path / name / "cat" / "0.png").write_bytes(picture(1))
    with pytest.raises(InputError, match=r"has .*test/.*, and no train/ to train on\. Put it there"):
        records(type="image-folder", path=str(tmp_path))


def test_a_label_may_be_called_train(image_folder):
    (image_folder / "cat").rename(image_folder / "train")
    images = records(type="image-folder", path=str(image_folder))
    assert {raw.label for raw in images} == {"train", "dog"}
    assert {raw.split for raw in images} == {None}


@pytest.mark.parametrize("stray", ["x.png", "train/x.png", "bird/x.png"])
def test_an_image_outside_the_layout_is_named(tmp_path, picture, stray):
    for name in ("train/a/1.png", "test/a/2.png", stray):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(picture(0))
    with pytest.raises(InputError, match=rf"data\.source\.path: .*: {stray} lies in no label's folder.* or test/"):
        records(type="image-folder", path=str(tmp_path))
