"""A recipe's file with one value changed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.recipe import yaml
from understudy.recipe.edit import with_value

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

    # what comes behind
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
    assert changed.endswith("    strategy:\n      pp   # parts\n\n    # what comes behind\n    steps: 3\n")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a: &x {b: 1}\nc: *x\n", ("c", "b")),  # would change the other one, too
        ("a: 1\n", ("a", "b")),
        ("a: 1\n", ("b", "c")),
        ("a: {}\n", ("a", "b")),
    ],
)
def test_what_cannot_be_changed_alone_is_not_changed(text: str, place: tuple[str, ...]) -> None:
    assert with_value(text, place, 2) is None


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
