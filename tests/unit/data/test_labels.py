import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.data.labels import canonical, check_shared, lookalikes
from understudy.data.sources.csv import CsvSource
from understudy.data.sources.image_folder import ImageFolderSource
from understudy.data.sources.parquet import ParquetSource
from understudy.errors import InputError


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


CSV = CsvSource(type="csv", path="a.csv", columns={"label": "message"})


@pytest.mark.parametrize(
    ("source", "question"),
    [
        (CSV, "is message the column of labels?"),
        (CsvSource(type="csv", path="a"), "is label the column of labels?"),
        (ParquetSource(type="parquet", path="a", label="kind"), "is kind the column of labels?"),
        (ImageFolderSource(type="image-folder", path="a"), "are its folders named after labels?"),
    ],
)
def test_a_label_for_nearly_every_record_is_refused(source, question):
    with pytest.raises(InputError) as refused:
        check_shared("data.source.path: here", source, 2000, 2000)
    assert str(refused.value) == f"data.source.path: here: 2,000 labels for 2,000 records: {question}"


def test_labels_that_records_share_are_accepted():
    check_shared("here", CSV, 1000, 2000)
    check_shared("here", CSV, 20, 20)
    for labels, records in ((1001, 2000), (11, 21)):
        with pytest.raises(InputError, match="labels for"):
            check_shared("here", CSV, labels, records)
