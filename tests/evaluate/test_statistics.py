import numpy as np
import pytest
import scipy.stats

from understudy.evaluate import statistics
from understudy.evaluate.metrics import Unmeasured
from understudy.evaluate.statistics import (
    Bootstrap,
    resampled_sums,
    smallest_detectable,
    student_t_margin,
    unseen_share,
)

MONTE_CARLO = 0.06  # of the interval's width: both sides draw 10 000 times, ends vary by about 2 % each


def test_intervals_of_ratios_agree_with_scipy(texts):
    arrays = texts(120, {"teacher": 2.3, "student": 2.4})
    expected = scipy.stats.bootstrap(
        (arrays["student.nll"], arrays["weights.tokens"]),
        lambda nll, tokens, axis: nll.sum(axis=axis) / tokens.sum(axis=axis),
        paired=True,
        method="percentile",
        n_resamples=10_000,
        rng=np.random.default_rng(1),
    ).confidence_interval
    low, high = Bootstrap(arrays, ["student"]).interval("nll", "student", 0.95)
    width = expected.high - expected.low
    assert (low, high) == pytest.approx(tuple(expected), abs=MONTE_CARLO * width)


def test_paired_relative_differences_agree_with_scipy(texts):
    arrays = texts(120, {"teacher": 2.3, "student": 2.4})

    def share(student, teacher, axis):
        return student.sum(axis=axis) / teacher.sum(axis=axis) - 1

    result = scipy.stats.bootstrap(
        (arrays["student.nll"], arrays["teacher.nll"]),
        share,
        paired=True,
        method="percentile",
        n_resamples=10_000,
        rng=np.random.default_rng(1),
    )
    seen = Bootstrap(arrays, ["student", "teacher"]).difference("bits_per_byte", "student", "teacher", 0.95)
    low, high = result.confidence_interval
    assert (seen.low, seen.high) == pytest.approx((low, high), abs=MONTE_CARLO * (high - low))
    assert seen.observed == pytest.approx(share(arrays["student.nll"], arrays["teacher.nll"], 0))
    assert seen.standard_error == pytest.approx(result.standard_error, rel=0.05)


def test_paired_differences_of_calibration_error_agree_with_scipy(images):
    arrays = images(400, {"teacher": 0.97, "student": 0.9})
    gaps = {
        role: arrays[f"{role}.confidence_correct"] - arrays[f"{role}.confidence_sum"] for role in ("teacher", "student")
    }

    def difference(rows):
        chosen = rows.astype(int)
        student, teacher = (np.abs(gaps[role][chosen].mean(axis=0)).sum() for role in ("student", "teacher"))
        return student - teacher

    expected = scipy.stats.bootstrap(
        (np.arange(400),),
        difference,
        vectorized=False,
        method="percentile",
        n_resamples=3000,
        rng=np.random.default_rng(1),
    ).confidence_interval
    seen = Bootstrap(arrays, ["student", "teacher"]).difference("calibration_error", "student", "teacher", 0.95)
    width = expected.high - expected.low
    assert (seen.low, seen.high) == pytest.approx(tuple(expected), abs=1.5 * MONTE_CARLO * width)


def test_intervals_cover_the_true_difference_about_as_often_as_they_say():
    """200 test sets of 250 examples whose true loss in accuracy is 3 points; intervals at 90 %."""
    generator = np.random.default_rng(0)
    covered = 0
    for seed in range(200):
        teacher = generator.random(250) < 0.95
        student = np.where(generator.random(250) < 0.04, ~teacher, teacher)
        true = 0.04 * (1 - 2 * 0.95)
        arrays = {
            "weights.tokens": np.ones(250),
            "teacher.correct": teacher.astype(float),
            "student.correct": student.astype(float),
        }
        bootstrap = Bootstrap(arrays, ["teacher", "student"], resamples=600, seed=seed)
        seen = bootstrap.difference("accuracy", "student", "teacher", 0.9)
        covered += seen.low <= true <= seen.high
    assert 0.83 <= covered / 200 <= 0.95  # a percentile interval of few discordant pairs covers a little less


def test_a_paired_interval_is_narrower_than_an_unpaired_one(texts):
    arrays = texts(150, {"teacher": 2.3, "student": 2.32})
    bootstrap = Bootstrap(arrays, ["teacher", "student"])
    low, high = bootstrap.interval("nll", "student", 0.95)
    seen = bootstrap.difference("nll", "student", "teacher", 0.95)
    assert (seen.high - seen.low) * bootstrap.value("nll", "teacher") < (high - low) / 3


def test_the_same_resamples_whatever_the_memory_allows(monkeypatch):
    table = np.random.default_rng(3).random((37, 5))
    whole = resampled_sums(table, 200)
    monkeypatch.setattr(statistics, "CELLS", 100)
    np.testing.assert_allclose(resampled_sums(table, 200), whole, rtol=1e-13)


def test_the_smallest_detectable_loss_is_detected_in_80_percent_of_test_sets():
    generator = np.random.default_rng(0)
    standard_error = 0.3
    true = smallest_detectable(standard_error, 0.95)
    seen = generator.normal(true, standard_error, 20_000)
    assert np.mean(seen - 1.959964 * standard_error > 0) == pytest.approx(0.8, abs=0.01)


def test_the_smallest_detectable_loss_of_a_simulated_test_set_is_detected_that_often():
    """The same with real bootstrap intervals: per-example losses of 100 examples, standard deviation 1."""
    generator = np.random.default_rng(1)
    true, detected = smallest_detectable(1 / np.sqrt(100), 0.95), 0
    for seed in range(300):
        teacher = generator.normal(5, 0.5, 100)
        arrays = {
            "weights.tokens": np.ones(100),
            "teacher.nll": teacher,
            "student.nll": teacher + generator.normal(true, 1, 100),
        }
        bootstrap = Bootstrap(arrays, ["teacher", "student"], resamples=500, seed=seed)
        detected += bootstrap.difference("nll", "student", "teacher", 0.95).low > 0
    assert 0.74 <= detected / 300 <= 0.87


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_an_accuracy_that_no_resample_moves_has_the_exact_interval(images, share):
    arrays = images(120, {"student": 2.0 * share - 0.5, "control": 2.0 * share - 0.5})
    bootstrap = Bootstrap(arrays, ["student", "control"])
    assert bootstrap.value("accuracy", "student") == share
    exact = scipy.stats.binomtest(round(120 * share), 120).proportion_ci(0.95, method="exact")
    assert bootstrap.interval("accuracy", "student", 0.95) == pytest.approx((exact.low, exact.high))
    seen = bootstrap.difference("accuracy", "student", "control", 0.95)
    assert (seen.low, seen.high) == pytest.approx((exact.low - exact.high, exact.high - exact.low))


def test_the_unseen_share_is_what_would_stay_unseen_in_so_many_examples():
    assert (1 - unseen_share(360, 0.95)) ** 360 == pytest.approx(0.025)
    assert unseen_share(1000, 0.9) == pytest.approx(3 / 1000, rel=0.01), "the rule of three"


def test_unusable_results_matter_only_when_they_are_asked_for(images):
    arrays = images(50, {"teacher": 0.9, "student": 0.8})
    arrays["champion.nll"] = arrays["champion.correct"] = np.ones(49)
    arrays["student.nll"][3] = np.nan
    bootstrap = Bootstrap(arrays, ["teacher", "student", "champion"])
    assert bootstrap.value("accuracy", "student") > 0.6
    with pytest.raises(Unmeasured, match="the student's negative log-likelihood was not measured"):
        bootstrap.difference("nll", "student", "teacher", 0.95)
    with pytest.raises(Unmeasured, match="not paired"):
        bootstrap.value("accuracy", "champion")


def test_one_example_compares_nothing(images):
    with pytest.raises(Unmeasured, match="1 test examples are too few"):
        Bootstrap(images(1, {"teacher": 0.9}), ["teacher"]).value("accuracy", "teacher")


def test_no_share_is_taken_of_nothing():
    arrays = {"weights.tokens": np.ones(4), "teacher.nll": np.zeros(4), "student.nll": np.ones(4)}
    with pytest.raises(Unmeasured, match="the teacher's negative log-likelihood is 0"):
        Bootstrap(arrays, ["teacher", "student"]).difference("nll", "student", "teacher", 0.95)


def test_the_margin_of_few_examples_is_student_s():
    sample = np.array([0.1, 0.4, -0.2, 0.3])
    low, high = scipy.stats.t.interval(0.95, 3, sample.mean(), scipy.stats.sem(sample))
    margin = student_t_margin(sample.std() / 2, 4, 0.95)
    assert margin == pytest.approx((high - low) / 2)
