"""The words of a record and their labels."""

import pytest

from understudy.data.raw import Broken, Checked, Raw
from understudy.data.words import check_words


@pytest.mark.parametrize(
    ("words", "labels", "fault"),
    [
        (b"a b", b"X", "has 2 words and 1 labels"),
        (b" ", b"", "is empty"),
        (b"", b"", "is empty"),
        (b"a", b"X\0", r"is not UTF-8 text (byte 1 is zero, as in UTF-16 and in binary files)"),
    ],
)
def test_a_text_without_a_label_for_each_word_is_broken(words: bytes, labels: bytes, fault: str) -> None:
    assert check_words(Raw("a", words, others={"labels": labels})) == Broken("a", fault)


def test_the_same_words_are_in_one_split_whatever_their_labels_and_spaces() -> None:
    one, other = (
        check_words(Raw("a", text, others={"labels": own})) for text, own in ((b"a b", b"X Y"), (b"a  b", b"Y Y"))
    )
    assert isinstance(one, Checked)
    assert isinstance(other, Checked)
    assert one.key == other.key
