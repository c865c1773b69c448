"""A recipe's file with values changed."""

import errno
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.errors import InputError, UnderstudyError
from understudy.recipe import yaml
from understudy.recipe.edit import rewrite, with_value

TEXT = """\
# A recipe.
teacher: {train: {steps: 2}}   # short
student:
  train:
    # for long
    steps: 10   # of them
    strategy: ddp   # copies
    batch_size: 4
other:
  train:
    strategy:
      dp_shard: 2
      # in a node
      tp: 2   # parts

    # the next setting
    steps: 3
"""


def test_a_word_is_changed_and_every_comment_stays() -> None:
    assert with_value(TEXT, ("student", "train", "strategy"), "fsdp") == TEXT.replace("ddp ", "fsdp ")


def test_a_section_takes_the_place_of_a_word_in_one_line() -> None:
    changed = with_value(TEXT, ("student", "train", "strategy"), {"dp_shard": 8, "tp": 2})
    assert changed == TEXT.replace("ddp ", "{dp_shard: 8, tp: 2} ")


def test_what_is_not_there_yet_comes_first() -> None:
    assert with_value(TEXT, ("teacher", "train", "strategy"), "tp") == TEXT.replace(
        "{steps: 2", "{strategy: tp, steps: 2"
    )
    without = TEXT.replace("    strategy: ddp   # copies\n", "")
    changed = with_value(without, ("student", "train", "strategy"), "tp")
    assert changed == without.replace("    steps: 10", "    strategy: tp\n    steps: 10")


def test_a_block_is_replaced_without_what_comes_behind_it() -> None:
    changed = with_value(TEXT, ("other", "train", "strategy"), "pp")
    assert changed is not None
    assert changed.endswith("    strategy:\n      pp   # parts\n\n    # the next setting\n    steps: 3\n")


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("a: &x {b: 1}\nc: *x\n", ("c", "b")),  # would change the other one, too
        ("a: 1\n", ("a", "b")),
        ("a: 1\n", ("b", "c")),
        ("a: {}\n", ("a", "b")),
    ],
)
def test_what_cannot_be_changed_alone_is_not_changed(text: str, path: tuple[str, ...]) -> None:
    assert with_value(text, path, 2) is None


words = st.text("abc-: #'", min_size=1, max_size=5)
values = st.recursive(
    st.integers() | st.booleans() | words, lambda inner: st.dictionaries(words, inner, max_size=3), max_leaves=6
)


@given(st.dictionaries(words, st.dictionaries(words, values, min_size=1), min_size=1), st.data())
def test_whatever_is_written_is_read_again(data: dict[str, dict[str, object]], chosen: st.DataObject) -> None:
    section = chosen.draw(st.sampled_from(sorted(data)))
    key = chosen.draw(st.sampled_from(sorted(data[section])) | words)
    value = chosen.draw(values)
    changed = with_value(yaml.dump(data), (section, key), value)  # type: ignore[arg-type]
    if changed is not None:
        assert yaml.parse(changed).data == {**data, section: {**data[section], key: value}}


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "recipe.yaml"
    path.write_bytes(Path("recipes/pydoc.yaml").read_bytes())
    path.chmod(0o640)
    return path


STRATEGY = ("teacher", "train", "strategy")


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_a_file_keeps_its_other_lines_its_mode_and_where_it_lies(recipe: Path, tmp_path: Path, ends: str) -> None:
    recipe.write_bytes(recipe.read_bytes().replace(b"\n", ends.encode()))
    before = recipe.read_bytes().split(ends.encode())
    link = tmp_path / "link.yaml"
    link.symlink_to(recipe)
    rewrite(link, {STRATEGY: "ddp", ("student", "train", "strategy"): "single"})
    after = recipe.read_bytes().split(ends.encode())
    assert link.is_symlink()
    assert recipe.stat().st_mode & 0o777 == 0o640
    assert [line for line in after if line not in before] == [b"    strategy: ddp", b"    strategy: single"]
    assert [line for line in before if line not in after] == []


def test_what_the_file_alone_would_be_refused_with_is_not_written(recipe: Path) -> None:
    before = recipe.read_bytes()
    message = r"nothing was written, since without the overrides .*\n.*resources\.teacher\.processes is 1"
    with pytest.raises(InputError, match=message):
        rewrite(recipe, {STRATEGY: {"dp_replicate": 2}})
    assert recipe.read_bytes() == before


def test_a_full_disk_leaves_the_file_as_it_was(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = recipe.read_bytes()

    def full(path: Path, content: bytes) -> None:
        with path.open("wb") as file:
            file.write(content[:100])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(UnderstudyError, match="the disk is full"):
        rewrite(recipe, {STRATEGY: "ddp"})
    assert recipe.read_bytes() == before
    assert list(recipe.parent.iterdir()) == [recipe]
