import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, log_loss

from understudy.evaluate.answer_scores import Unmeasured
from understudy.evaluate.metrics import (
    BINS,
    METRICS,
    bin_of,
    bins,
    columns,
    three_digits,
    value,
)
from understudy.recipe.tasks import all_metrics


def arrays_of(probabilities, labels):
    """Per-example results of a classifier, as scoring makes them."""
    count = len(labels)
    confidence, correct = probabilities.max(axis=1), (probabilities.argmax(axis=1) == labels).astype(float)
    arrays = {
        "weights.tokens": np.ones(count),
        "weights.bytes": np.zeros(count),
        "student.nll": -np.log(probabilities[np.arange(count), labels]),
        "student.correct": correct,
    }
    for part, values in (("count", 1.0), ("sum", confidence), ("correct", correct)):
        arrays[f"student.confidence_{part}"] = np.zeros((count, BINS))
        arrays[f"student.confidence_{part}"][np.arange(count), bin_of(confidence)] = values
    return arrays


def classifier(count=500, classes=4, seed=0):
    generator = np.random.default_rng(seed)
    probabilities = generator.dirichlet(np.full(classes, 0.4), count)
    labels = np.array([generator.choice(classes, p=row) for row in probabilities])
    return probabilities, labels


def measured(arrays, name, role="student"):
    return value(name, arrays, role)


def brute_force_calibration_error(confidence, correct):
    total = 0.0
    for lower in range(BINS):
        inside = [i for i, c in enumerate(confidence) if lower / BINS < c <= (lower + 1) / BINS]
        if inside:
            gap = abs(np.mean([correct[i] for i in inside]) - np.mean([confidence[i] for i in inside]))
            total += len(inside) / len(confidence) * gap
    return total


def test_accuracy_and_likelihood_agree_with_scikit_learn():
    probabilities, labels = classifier()
    arrays = arrays_of(probabilities, labels)
    assert measured(arrays, "accuracy") == pytest.approx(accuracy_score(labels, probabilities.argmax(axis=1)))
    assert measured(arrays, "nll") == pytest.approx(log_loss(labels, probabilities, labels=range(4)))
    assert measured(arrays, "perplexity") == pytest.approx(math.exp(log_loss(labels, probabilities, labels=range(4))))


def test_calibration_error_agrees_with_a_brute_force_one():
    probabilities, labels = classifier()
    correct = probabilities.argmax(axis=1) == labels
    expected = brute_force_calibration_error(probabilities.max(axis=1), correct)
    assert measured(arrays_of(probabilities, labels), "calibration_error") == pytest.approx(expected)


def test_bits_per_byte_by_hand():
    arrays = {
        "weights.tokens": np.array([2.0, 1.0]),
        "weights.bytes": np.array([6.0, 4.0]),
        "student.nll": np.array([5 * math.log(2), 10 * math.log(2)]),
    }
    assert measured(arrays, "bits_per_byte") == pytest.approx(1.5)


def test_every_metric_of_every_task_is_in_the_table():
    assert set(METRICS) >= set(all_metrics())


@given(st.permutations(range(30)))
def test_the_order_of_examples_does_not_matter(order):
    arrays = arrays_of(*classifier(30))
    shuffled = {name: array[list(order)] for name, array in arrays.items()}
    for name in ("accuracy", "nll", "perplexity", "calibration_error"):
        assert measured(shuffled, name) == pytest.approx(measured(arrays, name), rel=1e-12)


@pytest.mark.parametrize("invalid", [math.nan, math.inf])
def test_a_single_value_that_is_no_number_leaves_the_metric_unmeasured(invalid):
    arrays = arrays_of(*classifier())
    arrays["student.nll"][7] = invalid
    assert measured(arrays, "nll") is None
    assert measured(arrays, "perplexity") is None
    assert measured(arrays, "accuracy") is not None


def test_a_missing_array_leaves_only_its_metrics_unmeasured():
    arrays = arrays_of(*classifier())
    del arrays["student.confidence_sum"]
    assert measured(arrays, "calibration_error") is None
    assert bins(arrays, "student") == []
    assert measured(arrays, "bits_per_byte") is None, "images have no bytes of text"
    assert measured(arrays, "accuracy") is not None


def test_a_perplexity_too_large_for_a_number_is_not_measured():
    arrays = {"weights.tokens": np.ones(2), "student.nll": np.array([1e4, 1e4])}
    assert measured(arrays, "perplexity") is None
    assert measured(arrays, "nll") == 1e4


def test_results_about_other_examples_are_refused():
    arrays = arrays_of(*classifier())
    arrays["student.nll"] = arrays["student.nll"][:-1]
    with pytest.raises(Unmeasured, match="not paired: 499 for 500"):
        columns(arrays, "student")
    with pytest.raises(Unmeasured, match="no per-example results of the teacher"):
        columns(arrays, "teacher")
    with pytest.raises(Unmeasured, match=r"weights\.tokens"):
        columns({}, "student")


def test_bins_hold_all_predictions_and_empty_ones_claim_nothing():
    points = bins(arrays_of(*classifier()), "student")
    assert len(points) == BINS
    assert sum(point["weight"] for point in points) == pytest.approx(1)
    assert points[0] == {"confidence": None, "accuracy": None, "weight": 0.0}, "four classes: never below a quarter"
    assert points[-1]["confidence"] == pytest.approx(0.97, abs=0.04)


def test_bins_are_open_below_and_closed_above():
    assert list(bin_of(np.array([0.0, 1 / 15, 1 / 15 + 1e-9, 1.0, math.nan]))) == [0, 0, 1, 14, 0]


@pytest.mark.parametrize(
    ("name", "number", "shown", "difference"),
    [
        ("accuracy", 0.98, "98.00 %", "+98.00 points"),
        ("nll", 0.98, "0.9800", "+98.00 %"),
        ("calibration_error", 0.98, "0.9800", "+0.9800"),
        ("perplexity", None, "not measured", None),
    ],
)
def test_values_are_shown_in_their_unit(name, number, shown, difference):
    assert METRICS[name].show(number) == shown
    if number is not None:
        assert METRICS[name].show_difference(number) == difference
        assert METRICS[name].show_difference(-number).startswith("−")


@given(st.floats(1e-6, 1e12))
def test_a_number_for_a_reader_has_three_digits_and_no_power_of_ten(value: float) -> None:
    shown = three_digits(value)
    assert "e" not in shown
    assert float(shown.replace(",", "")) == pytest.approx(value, rel=5e-3)


def test_metrics_of_answers_need_an_answer_to_every_example():
    arrays = arrays_of(*classifier(40))
    assert measured(arrays, "macro_f1") is None
    arrays["weights.target"] = np.arange(40.0) % 4
    arrays["student.answer"] = np.arange(40.0) % 2
    assert measured(arrays, "macro_f1") == pytest.approx((2 / 3 + 2 / 3) / 4)
    assert value("macro_f1", arrays, "student", np.array([0, 4])) == 1.0
    arrays["student.answer"][3] = math.nan
    assert measured(arrays, "matthews") is None
