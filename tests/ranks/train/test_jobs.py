"""Which rows of a matrix always run."""

from itertools import combinations, product
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.ranks.train.jobs import matrix


@given(st.lists(st.integers(1, 4), min_size=2, max_size=4))
def test_each_two_values_of_two_factors_meet_in_a_row_that_always_runs(sizes: list[int]) -> None:
    rows: list[Any] = matrix(*(range(size) for size in sizes))
    always = [row for row in rows if type(row) is tuple]  # a row marked full is a named one
    assert sorted([*always, *(row.values for row in rows if row not in always)]) == sorted(product(*map(range, sizes)))
    for first, second in combinations(range(len(sizes)), 2):
        met = {(row[first], row[second]) for row in always}
        assert met == set(product(range(sizes[first]), range(sizes[second])))
