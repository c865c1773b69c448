import pytest

from understudy.evaluate.copies import on_copies
from understudy.recipe.tasks import load


@pytest.mark.parametrize(("distinct", "warned"), [(20, True), (934, True), (935, False), (984, False)])
def test_it_warns_where_less_than_95_percent_of_the_test_examples_differ(distinct, warned):
    records = {"counts": {"train": 9, "test": 984}, "distinct": {"train": 1, "test": distinct}}
    sentence = on_copies(records, load("text-classification"))
    assert bool(sentence) == warned
    assert not warned or sentence.startswith(f"Of 984 test texts {distinct} differ. Copies are not independent")


def test_records_without_copies_have_no_warning():
    assert on_copies({"counts": {"test": 40}}, load("image-classification")) == ""
