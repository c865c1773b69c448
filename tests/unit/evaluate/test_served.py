from typing import Literal

import numpy as np
import pytest

from understudy.evaluate.served import EXAMPLES, PREDICTIONS, TOLERANCES, Comparison, chosen


@pytest.mark.parametrize("lengths", [[1] * 1000, [2**14] * 9, [2**20, 2**19], [3], [2**16, 1]])
def test_few_examples_are_chosen_from_the_whole_split(lengths: list[int]) -> None:
    chosen_examples = chosen(np.array(lengths))
    assert 1 <= len(chosen_examples) <= EXAMPLES
    assert chosen_examples == sorted(set(chosen_examples))
    assert sum(lengths[index] for index in chosen_examples) <= PREDICTIONS or chosen_examples == [
        int(np.argmin(lengths))
    ]


def test_examples_without_predictions_are_not_chosen() -> None:
    assert chosen(np.array([0, 3, 0, 0, 4])) == [1, 4]
    assert chosen(np.array([0, PREDICTIONS + 1, 0])) == [1]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(("difference", "within"), [(0.0, True), (0.9, True), (1.1, False), (np.nan, False)])
def test_the_tolerance_is_half_of_the_digits_for_each_prediction(
    difference: float, within: bool, precision: Literal["fp32", "bf16"]
) -> None:
    measured, predictions = np.array([3.0, 40.0]), np.array([1.0, 20.0])
    served = measured + np.array([0, difference * TOLERANCES[precision] * 60])
    comparison = Comparison((4, 9), measured, served, predictions, precision)
    assert comparison.is_within_tolerance is within
    assert comparison.worst == 1 or difference == 0
