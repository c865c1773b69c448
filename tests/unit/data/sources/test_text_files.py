from pathlib import Path

import pytest

from tests.unit.data.sources.reading import records
from understudy.data.raw import Broken, Raw
from understudy.errors import InputError


def test_text_files_are_documents_with_the_splits_of_their_folders(tmp_path):
    for name in ("train/a.txt", "test/deep/b.txt", "validation/c.txt", "d.txt", "train/e.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    documents = records(type="text-files", path=str(tmp_path))
    assert documents == [
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
    documents = records(type="text-files", path=str(text_folder))
    assert documents[0] == Broken("00.txt", "cannot be read (Permission denied)")


@pytest.mark.parametrize("glob", ["", "/etc/*", "../*"])
def test_a_glob_that_leaves_the_folder_is_refused(text_folder, glob):
    with pytest.raises(InputError, match=r"data\.source\.glob: .*Give a pattern below path"):
        records(type="text-files", path=str(text_folder), glob=glob)
