import itertools

import numpy as np
import pytest

from understudy.evaluate.results import by_label, by_length, quality, slices


def test_quality_has_values_inside_their_intervals(texts):
    arrays = texts(100, {"teacher": 2.3, "student": 2.4})
    results = quality(arrays, ["teacher", "student"], ["bits_per_byte", "accuracy"])
    assert list(results) == ["teacher", "student"]
    for model in results.values():
        for name, value in model["metrics"].items():
            low, high = model["intervals"][name]
            assert low < value < high
        assert len(model["calibration"]) == 15


def test_one_example_has_values_and_no_intervals(images):
    results = quality(images(1, {"student": 1.0}), ["student"], ["accuracy"])["student"]
    assert results["metrics"] == {"accuracy": 1.0}
    assert results["intervals"] == {"accuracy": None}


def test_slices_hold_each_example_once(images):
    arrays = images(90, {"student": 0.8})
    labels = np.arange(90) % 2
    rows = slices(arrays, ["student"], "accuracy", by_label(labels, ["even", "odd", "never"]))
    assert [(row["slice"], row["examples"]) for row in rows] == [("even", 45), ("odd", 45)]
    assert rows[0]["student"] == pytest.approx(arrays["student.correct"][labels == 0].mean())


@pytest.mark.parametrize("count", [1, 3, 4, 10])
def test_quarters_are_even_and_ordered(count):
    sizes = np.random.default_rng(0).integers(0, 5000, count)
    parts = list(by_length(sizes, "bytes").values())
    assert sorted(np.concatenate(parts)) == list(range(count))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert all(sizes[a].max() <= sizes[b].min() for a, b in itertools.pairwise(parts))


def test_quarters_of_equal_documents_stay_apart():
    assert len(by_length(np.full(8, 100), "bytes")) == 4
