import os
import subprocess
import sys

import pytest

from tests.unit.data.sources.reading import section
from understudy.data.sources import digits
from understudy.data.sources.registry import module_of, source_identity
from understudy.recipe.sources import SOURCES, load


class TestIdentity:
    def test_a_file_changed_in_place_with_the_same_size_and_time_is_noticed(self, text_folder, fingerprints):
        texts = section(type="text-files", path=str(text_folder))
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
        images = section(type="image-folder", path=str(image_folder))
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
        before = source_identity(section(type="text-files", path=str(text_folder)), fingerprints)
        moved = text_folder.rename(text_folder.with_name("elsewhere"))
        os.utime(moved / "00.txt", (0, 0))
        assert source_identity(section(type="text-files", path=str(moved)), fingerprints) == before

    def test_files_that_the_glob_leaves_out_have_no_say(self, text_folder, fingerprints):
        texts = section(type="text-files", path=str(text_folder))
        before = source_identity(texts, fingerprints)
        (text_folder / "README.md").write_text("new")
        assert source_identity(texts, fingerprints) == before

    @pytest.mark.parametrize("beside", ["other.parquet", ".understudy/store/records.parquet", "b/c.parquet"])
    def test_what_lies_beside_a_single_file_has_no_say(self, tmp_path, fingerprints, beside):
        (tmp_path / "one.parquet").write_bytes(b"records")
        single = section(type="parquet", path=str(tmp_path / "one.parquet"))
        before = source_identity(single, fingerprints)
        (tmp_path / beside).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / beside).write_bytes(b"others")
        assert source_identity(single, fingerprints) == before
        (tmp_path / "one.parquet").write_bytes(b"changed")
        assert source_identity(single, fingerprints) != before

    def test_hidden_files_have_no_say(self, text_folder, fingerprints):
        texts = section(type="text-files", path=str(text_folder))
        before = source_identity(texts, fingerprints)
        (text_folder / ".hidden.txt").write_text("not read")
        assert source_identity(texts, fingerprints) == before

    def test_built_in_sources_have_the_digest_of_what_they_read(self, fingerprints, monkeypatch, tmp_path):
        before = source_identity(section(type="digits"), fingerprints)
        assert len(before["sha256"]) == 64
        (tmp_path / "digits.csv.gz").write_bytes(b"others")
        monkeypatch.setattr(digits, "_file", lambda: tmp_path / "digits.csv.gz")
        assert source_identity(section(type="digits"), fingerprints) != before


def test_the_module_of_a_source_is_the_one_that_reads_it():
    assert module_of(section(type="digits")) == digits.__name__


HEAVY = ("numpy", "pyarrow", "PIL", "tokenizers", "torch", "sklearn")


@pytest.mark.parametrize("module", ["understudy.data.sources.registry", *SOURCES.values()])
def test_nothing_heavy_is_imported_whichever_module_comes_first(module):
    code = f"import sys, {module}, understudy.recipe.sources as s; [s.load(name) for name in s.SOURCES]; "
    code += f"print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", SOURCES)
def test_every_source_is_registered_under_its_type(name):
    assert load(name).section.model_fields["type"].annotation.__args__ == (name,)
