"""Metrics of generated answers: their values and intervals, beside scipy's and those of accuracy."""

import numpy as np
import pytest
import scipy.stats

from understudy.evaluate.answer_scores import Uncollected, as_accuracy
from understudy.evaluate.metrics import METRICS, value
from understudy.evaluate.statistics import Bootstrap
from understudy.recipe.evaluation import GENERATED


def scored(count: int = 200) -> dict[str, np.ndarray]:
    """Of 1,000 examples, some are answered."""
    generator = np.random.default_rng(1)
    teacher = generator.beta(4, 2, count)
    student = np.clip(teacher - generator.normal(0.05, 0.1, count), 0, 1)
    arrays = {"weights.tokens": np.ones(1000), "weights.bytes": np.ones(1000)}
    for role, scores in (("teacher", teacher), ("student", student)):
        arrays |= {f"{role}.nll": np.ones(1000), f"{role}.correct": np.ones(1000)}
        arrays |= {f"{role}.f1": scores, f"{role}.exact_match": (scores > 0.7).astype(float)}
    return arrays


def test_every_metric_of_answers_has_a_score_and_no_other_has() -> None:
    assert {name for name, metric in METRICS.items() if metric.from_texts} == GENERATED


def test_a_metric_is_the_mean_of_its_scores() -> None:
    arrays = scored()
    assert value("f1", arrays, "student") == pytest.approx(arrays["student.f1"].mean())
    bootstrap = Bootstrap(arrays, ["teacher", "student"])
    assert bootstrap.value("f1", "student") == pytest.approx(arrays["student.f1"].mean())
    assert bootstrap.value("accuracy", "student") == 1, "of all examples"


def test_the_difference_of_two_models_has_students_interval() -> None:
    arrays = scored()
    found = Bootstrap(arrays, ["teacher", "student"]).difference("f1", "student", "teacher", 0.95)
    expected = scipy.stats.ttest_rel(arrays["student.f1"], arrays["teacher.f1"]).confidence_interval(0.95)
    width = expected.high - expected.low
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=0.06 * width)


def test_answers_that_are_right_or_wrong_have_wilsons_interval() -> None:
    arrays = scored()
    bootstrap = Bootstrap(arrays, ["teacher", "student"])
    right = int(arrays["student.exact_match"].sum())
    expected = scipy.stats.binomtest(right, 200).proportion_ci(0.95, method="wilson")
    assert bootstrap.interval("exact_match", "student", 0.95) == pytest.approx((expected.low, expected.high))


def test_a_model_without_answers_or_with_some_that_are_nan_is_not_measured() -> None:
    arrays = scored()
    arrays["student.f1"][3] = np.nan
    bootstrap = Bootstrap(arrays, ["teacher", "student", "champion"])
    for role, words in (("student", "some answers of the student were not measured"), ("champion", "has generated no")):
        with pytest.raises(Uncollected, match=words):
            bootstrap.difference("f1", role, "teacher", 0.95)
        assert value("f1", arrays, role) is None
    assert bootstrap.value("f1", "teacher") > 0, "others are"


def test_no_answers_at_all_are_not_measured() -> None:
    with pytest.raises(Uncollected):
        as_accuracy("f1", {"student.f1": np.zeros(0)}, ["student"])


def test_few_answers_are_too_few_to_decide() -> None:
    difference = Bootstrap(scored(12), ["teacher", "student"]).difference("f1", "student", "teacher", 0.95)
    assert difference.few
