import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.data.labels import canonical, lookalikes


@given(st.text())
def test_every_form_of_a_name_is_one_label(text):
    composed, decomposed = unicodedata.normalize("NFC", text), unicodedata.normalize("NFD", text)
    assert canonical(composed) == canonical(decomposed) == canonical(canonical(text))


@pytest.mark.parametrize(
    "pair",
    [("Cat", "cat"), ("big cat", "big_cat"), ("cat", "cat "), ("STRASSE", "straße"), ("cat", "ｃａｔ"), ("a-b", "ab")],
)
def test_labels_that_may_be_one_are_noted(pair):
    assert lookalikes(["dog", *pair]) == [f"labels that may be meant to be one: {', '.join(sorted(pair))}"]


@given(st.lists(st.integers(0, 99).map(str), unique=True))
def test_numbers_are_not(labels):
    assert lookalikes(labels) == []


def test_many_are_counted():
    pairs = [case(f"label {number}") for number in range(5) for case in (str, str.upper)]
    (note,) = lookalikes(pairs)
    assert note.endswith("LABEL 2, label 2; and 2 more such")
