import errno
import os
import re

import pytest

from tests.unit.data.sources.reading import records, section
from understudy.data.sources.registry import source_identity
from understudy.errors import InputError
from understudy.recipe.sources import SOURCES, load
from understudy.store import files as store_files


@pytest.mark.parametrize("kind", [name for name in SOURCES if "path" in load(name).section.model_fields])
class TestPaths:
    def test_a_missing_path_is_named_with_the_fix(self, tmp_path, fingerprints, kind):
        for call in (records, lambda **values: source_identity(section(**values), fingerprints)):
            with pytest.raises(InputError, match=r"data\.source\.path: .*nowhere does not exist\. Give a path"):
                call(type=kind, path=str(tmp_path / "nowhere"))

    @pytest.mark.parametrize(
        ("names", "message"),
        [
            ([".hidden"], ", nor anything else that is not hidden"),
            (["notes.doc"], ", only notes.doc"),
            ([".git/HEAD"], ", nor anything else that is not hidden"),
            (["a/notes.doc", "b.doc", "c.doc"], ", only a, b.doc, c.doc"),
            (["a.doc", "b.doc", "c.doc", "d.doc"], ", only a.doc, b.doc, c.doc and 1 more"),
        ],
    )
    def test_a_folder_without_a_record_is_named_with_what_it_holds(self, tmp_path, fingerprints, kind, names, message):
        for name in names:
            (tmp_path / "void" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "void" / name).write_text("of another kind")
        if kind == "datasets" and not names[0].startswith("."):  # the library chooses among all files
            with pytest.raises(InputError, match=r"void: .*No \(supported\) data files found.* Correct its files"):
                records(type=kind, path=str(tmp_path / "void"))
            return
        for call in (records, lambda **values: source_identity(section(**values), fingerprints)):
            with pytest.raises(InputError, match=rf"void holds no .*{re.escape(message)}\. Put some there"):
                call(type=kind, path=str(tmp_path / "void"))


@pytest.mark.parametrize("source", ["text-files", "image-folder", "parquet"])
def test_a_file_that_cannot_be_read_is_identified_until_it_can(tmp_path, fingerprints, monkeypatch, source):
    """Ingest decides about it; an error here would come before any message that names the file."""
    (tmp_path / "a").mkdir()
    for name in ("a/1.txt", "a/1.png", "a/1.parquet", "a/2.txt", "a/2.png", "a/2.parquet"):
        (tmp_path / name).write_text(name)

    def digest() -> str:
        return source_identity(section(type=source, path=str(tmp_path)), fingerprints)["sha256"]

    readable = digest()
    with monkeypatch.context() as patch:
        patch.setattr(store_files, "hash_file", refuse)
        unreadable = digest()
        assert unreadable == digest()
    assert unreadable != readable == digest()


def refuse(path):
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


def test_what_a_folder_holds_instead_can_have_any_name(tmp_path):
    (tmp_path / os.fsdecode(b"\xff.doc")).write_text("")
    with pytest.raises(InputError, match=r"only \\xff\.doc\. Put some there"):
        records(type="parquet", path=str(tmp_path))


def test_a_file_where_a_folder_is_wanted_is_refused(tmp_path):
    (tmp_path / "a.txt").write_text("a")
    with pytest.raises(InputError, match="is not a folder"):
        records(type="text-files", path=str(tmp_path / "a.txt"))


def test_a_name_that_is_not_utf_8_is_refused(text_folder):
    (text_folder / os.fsdecode(b"caf\xe9.txt")).write_text("x")
    with pytest.raises(InputError, match=r"caf\\udce9.txt': the name is not UTF-8"):
        records(type="text-files", path=str(text_folder))
