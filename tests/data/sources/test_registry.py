import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from pydantic import TypeAdapter

from understudy.data.images import pixels
from understudy.data.raw import Broken, Raw
from understudy.data.sources import digits
from understudy.data.sources.registry import read, source_identity
from understudy.errors import InputError
from understudy.recipe.data import Source
from understudy.store.files import Fingerprints


def source(**values):
    return TypeAdapter(Source).validate_python(values)


def records(**values):
    return list(read(source(**values)).records)


@pytest.fixture
def fingerprints(tmp_path):
    folder = tmp_path / "fingerprints"
    folder.mkdir()
    return Fingerprints(folder)


def test_digits_are_those_of_scikit_learn():
    from sklearn.datasets import load_digits

    expected = load_digits()
    found = records(type="digits")
    images = np.stack([pixels(raw.content, 8, 1)[0] for raw in found])
    np.testing.assert_array_equal(images, np.rint(expected.images * 255 / 16))
    assert [raw.label for raw in found] == [str(label) for label in expected.target]


def test_a_folder_of_images_is_labelled_by_its_sub_folders(image_folder):
    (image_folder / "cat" / "deeper").mkdir()
    (image_folder / "cat" / "00.png").rename(image_folder / "cat" / "deeper" / "00.PNG")
    found = records(type="image-folder", path=str(image_folder))
    assert len(found) == 40
    assert {raw.label for raw in found if raw.name.startswith("cat/")} == {"cat"}
    assert all(raw.split is None for raw in found)
    assert "cat/deeper/00.PNG" in {raw.name for raw in found}


def test_hidden_files_and_other_suffixes_do_not_count(image_folder):
    (image_folder / "cat" / "._00.png").write_bytes(b"what a Mac leaves behind")
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
    found = records(type="image-folder", path=str(tmp_path))
    names = {"val": "validation"}
    assert {(raw.name.split("/")[0], raw.split) for raw in found} == {
        (name, names.get(name, name)) for name in ("train", *held_out)
    }
    assert {raw.label for raw in found} == {"a", "b"}


@pytest.mark.parametrize("names", [("Train", "Test"), ("train", "valid"), ("TRAIN", "VAL")])
def test_splits_are_known_in_any_case_of_letters(tmp_path, picture, names):
    for name in names:
        (tmp_path / name / "cat").mkdir(parents=True)
        (tmp_path / name / "cat" / "0.png").write_bytes(picture(1))
    found = records(type="image-folder", path=str(tmp_path))
    assert {raw.label for raw in found} == {"cat"}
    assert {raw.split for raw in found} == {"train", "test" if names[1] == "Test" else "validation"}


def test_a_link_to_a_folder_is_refused_and_not_left_out(image_folder, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (image_folder / "dog2").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match=r"dog2 is a link to a folder; links are not followed"):
        records(type="image-folder", path=str(image_folder))


def test_a_label_may_be_called_train(image_folder):
    (image_folder / "cat").rename(image_folder / "train")
    found = records(type="image-folder", path=str(image_folder))
    assert {raw.label for raw in found} == {"train", "dog"}
    assert {raw.split for raw in found} == {None}


@pytest.mark.parametrize("stray", ["x.png", "train/x.png", "bird/x.png"])
def test_an_image_outside_the_layout_is_named(tmp_path, picture, stray):
    for name in ("train/a/1.png", "test/a/2.png", stray):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(picture(0))
    with pytest.raises(InputError, match=rf"data\.source\.path: .*: {stray} lies in no label's folder.* or test/"):
        records(type="image-folder", path=str(tmp_path))


def test_text_files_are_documents_with_the_splits_of_their_folders(tmp_path):
    for name in ("train/a.txt", "test/deep/b.txt", "validation/c.txt", "d.txt", "train/e.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    found = records(type="text-files", path=str(tmp_path))
    assert found == [
        Raw("d.txt", b"d.txt"),
        Raw("test/deep/b.txt", b"test/deep/b.txt", None, "test"),
        Raw("train/a.txt", b"train/a.txt", None, "train"),
        Raw("validation/c.txt", b"validation/c.txt", None, "validation"),
    ]
    assert [raw.name for raw in records(type="text-files", path=str(tmp_path), glob="**/*.md")] == ["train/e.md"]


def test_an_unreadable_file_is_broken_not_fatal(text_folder, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    found = records(type="text-files", path=str(text_folder))
    assert found[0] == Broken("00.txt", "cannot be read (Permission denied)")


@pytest.mark.parametrize("kind", ["image-folder", "text-files", "parquet"])
class TestPaths:
    def test_a_missing_path_is_named_with_the_fix(self, tmp_path, fingerprints, kind):
        for call in (records, lambda **values: source_identity(source(**values), fingerprints)):
            with pytest.raises(InputError, match=r"data\.source\.path: .*nowhere does not exist\. Give a path"):
                call(type=kind, path=str(tmp_path / "nowhere"))

    @pytest.mark.parametrize(
        ("there", "told"),
        [
            ([".hidden"], ", nor anything else that is not hidden"),
            (["notes.doc"], ", only notes.doc"),
            ([".git/HEAD"], ", nor anything else that is not hidden"),
            (["a/notes.doc", "b.doc", "c.doc"], ", only a, b.doc, c.doc"),
            (["a.doc", "b.doc", "c.doc", "d.doc"], ", only a.doc, b.doc, c.doc and 1 more"),
        ],
    )
    def test_a_folder_without_a_record_is_named_with_what_it_holds(self, tmp_path, fingerprints, kind, there, told):
        for name in there:
            (tmp_path / "void" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "void" / name).write_text("of another kind")
        for call in (records, lambda **values: source_identity(source(**values), fingerprints)):
            with pytest.raises(InputError, match=rf"void holds no .*{re.escape(told)}\. Put some there"):
                call(type=kind, path=str(tmp_path / "void"))


def test_what_a_folder_holds_instead_can_have_any_name(tmp_path):
    (tmp_path / os.fsdecode(b"\xff.doc")).write_text("")
    with pytest.raises(InputError, match=r"only \\xff\.doc\. Put some there"):
        records(type="parquet", path=str(tmp_path))


def test_a_file_where_a_folder_is_wanted_is_refused(tmp_path):
    (tmp_path / "a.txt").write_text("a")
    with pytest.raises(InputError, match="is not a folder"):
        records(type="text-files", path=str(tmp_path / "a.txt"))


@pytest.mark.parametrize("glob", ["", "/etc/*", "../*"])
def test_a_glob_that_leaves_the_folder_is_refused(text_folder, glob):
    with pytest.raises(InputError, match=r"data\.source\.glob: .*Give a pattern below path"):
        records(type="text-files", path=str(text_folder), glob=glob)


def test_a_name_that_is_not_utf_8_is_refused(text_folder):
    (text_folder / os.fsdecode(b"caf\xe9.txt")).write_text("x")
    with pytest.raises(InputError, match=r"caf\\udce9.txt': the name is not UTF-8"):
        records(type="text-files", path=str(text_folder))


class TestIdentity:
    def test_a_file_changed_in_place_with_the_same_size_and_time_is_noticed(self, text_folder, fingerprints):
        texts = source(type="text-files", path=str(text_folder))
        before = source_identity(texts, fingerprints)
        assert source_identity(texts, fingerprints) == before
        path = text_folder / "07.txt"
        stat = path.stat()
        with path.open("r+b") as stream:
            stream.write(b"D")
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        assert (path.stat().st_size, path.stat().st_mtime_ns) == (stat.st_size, stat.st_mtime_ns)
        assert source_identity(texts, fingerprints) != before

    @pytest.mark.parametrize("change", ["add", "remove", "rename"])
    def test_files_that_come_and_go_are_noticed(self, image_folder, fingerprints, change):
        images = source(type="image-folder", path=str(image_folder))
        before = source_identity(images, fingerprints)
        path = image_folder / "cat" / "00.png"
        match change:
            case "add":
                (image_folder / "dog" / "new.png").write_bytes(path.read_bytes())
            case "remove":
                path.unlink()
            case "rename":
                path.rename(image_folder / "dog" / "00.png")
        assert source_identity(images, fingerprints) != before

    def test_it_hangs_on_content_not_on_place_or_time(self, text_folder, fingerprints):
        before = source_identity(source(type="text-files", path=str(text_folder)), fingerprints)
        moved = text_folder.rename(text_folder.with_name("elsewhere"))
        os.utime(moved / "00.txt", (0, 0))
        assert source_identity(source(type="text-files", path=str(moved)), fingerprints) == before

    def test_files_that_the_glob_leaves_out_have_no_say(self, text_folder, fingerprints):
        texts = source(type="text-files", path=str(text_folder))
        before = source_identity(texts, fingerprints)
        (text_folder / "README.md").write_text("new")
        assert source_identity(texts, fingerprints) == before

    def test_built_in_sources_have_the_digest_of_what_they_read(self, fingerprints, monkeypatch, tmp_path):
        before = source_identity(source(type="digits"), fingerprints)
        assert len(before["sha256"]) == 64
        (tmp_path / "digits.csv.gz").write_bytes(b"others")
        monkeypatch.setattr(digits, "_file", lambda: tmp_path / "digits.csv.gz")
        assert source_identity(source(type="digits"), fingerprints) != before

    def test_it_imports_nothing_heavy(self):
        code = (
            "import sys, understudy.data.sources.registry; "
            "print([m for m in ('numpy', 'pyarrow', 'PIL', 'tokenizers', 'torch', 'sklearn') if m in sys.modules])"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "[]"
