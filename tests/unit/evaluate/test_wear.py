import numpy as np
import pytest

from understudy.evaluate.wear import MANY, judged_so_far, worn


@pytest.mark.parametrize("judged", [0, 1, 2, MANY - 1, MANY, 40])
def test_it_warns_from_the_tenth_on(judged):
    assert bool(list(worn(judged, 0.95))) == (judged >= 10)
    assert str(judged) in judged_so_far(judged) or judged < 2


def test_the_chance_it_names_is_that_of_as_many_independent_students():
    """Ten normal estimates whose true loss is the margin, simulated: how often does one of them pass at 97.5 %?"""
    lowest = np.random.default_rng(0).normal(size=(100_000, 10)).min(axis=1)
    simulated = 100 * np.mean(lowest < -1.959964)
    [sentence] = worn(10, 0.95)
    assert f"in {simulated:.0f} % of the cases" in sentence
    assert "not in 2.5 %" in sentence
