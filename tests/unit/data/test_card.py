"""A data set's card: its untrusted entries are short plain text, or left out."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.data.card import BUILT_IN, LARGEST, LONGEST, card
from understudy.recipe.sources import load

CARD = """---
license: cc-by-4.0
pretty_name: Pets
source_datasets:
- extended|imagenet-1k
- original
size_categories: 1K<n<10K
---
# Pets
license: not this one
"""


@pytest.mark.parametrize("location", [".", "..", "a file"])
def test_the_card_lies_beside_the_data_or_above_it(tmp_path: Path, location: str) -> None:
    data = tmp_path / "pets" / "data"
    data.mkdir(parents=True)
    (data / "train.parquet").touch()
    ((data if location != ".." else data.parent) / "README.md").write_text(CARD)
    path = data / "train.parquet" if location == "a file" else data
    assert card(str(path)) == {"name": "Pets", "licence": "cc-by-4.0", "made from": "extended|imagenet-1k, original"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# Pets\nlicense: mit\n",
        "---\nlicense: mit\n",
        "---\nlicense: [\n---\n",
        "---\n- license\n---\n",
        "---\nlicense: {a: b}\npretty_name: 7\n---\n",
        "---\nlicense: 2026-99-99\na: 2026-99-99T00:00:00\n---\n",
        "---\n" + "[" * 5000 + "\n---\n",
        "---\n" + "x: y\n" * LARGEST + "license: mit\n---\n",
    ],
)
def test_what_is_no_front_matter_says_nothing_of_a_licence(tmp_path: Path, text: str) -> None:
    (tmp_path / "README.md").write_text(text)
    assert card(str(tmp_path)).get("licence") in (None, "2026-99-99")


@pytest.mark.parametrize(
    "value",
    ["!!bool maybe", "!!timestamp x", "!!int ''", "!!binary a", "null", "!!python/object/apply:os.system [true]"],
)
def test_a_tag_of_another_type_ends_nothing(tmp_path: Path, value: str) -> None:
    (tmp_path / "README.md").write_text(f"---\npretty_name: Pets\nlicense: {value}\n---\n")
    assert card(str(tmp_path))["name"] == "Pets"


def test_merged_keys_are_not_multiplied(tmp_path: Path) -> None:
    """Of 60 levels with nine references each there would be 9^60 keys."""
    levels = [f"a{level}: &a{level} {{<<: [{', '.join([f'*a{level - 1}'] * 9)}]}}" for level in range(1, 60)]
    (tmp_path / "README.md").write_text("\n".join(["---", "license: mit", "a0: &a0 {x: y}", *levels, "---"]))
    assert card(str(tmp_path)) == {"licence": "mit"}


def test_a_path_may_begin_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "pets").mkdir()
    (tmp_path / "pets" / "README.md").write_text(CARD)
    assert card("~/pets")["name"] == "Pets"


@given(content=st.binary(max_size=200))
def test_any_bytes_give_short_printable_words(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("data")
    (folder / "README.md").write_bytes(b"---\nlicense: " + content + b"\n---\n")
    for value in card(str(folder)).values():
        assert value.isprintable()
        assert len(value) <= LONGEST


def test_data_that_comes_along_is_that_of_sources_without_a_path() -> None:
    for kind, built_in in BUILT_IN.items():
        assert "path" not in load(kind).section.model_fields
        assert built_in.keys() == {"name", "licence"}


def test_what_is_no_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "README.md")  # opening it would wait for ever
    assert card(str(tmp_path)) == {}
    assert card(None) == {}
    assert card(str(tmp_path / "no" / "such")) == {}
