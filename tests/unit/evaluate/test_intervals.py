import math

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.evaluate.intervals import (
    effective_number,
    least_examples,
    least_score,
    paired_score,
    smallest_detectable,
    wilson,
)
from understudy.evaluate.statistics import Bootstrap

MONTE_CARLO = 0.05  # of an interval's width: both sides draw 10 000 times
Z = scipy.stats.norm.ppf(0.975)


@pytest.mark.parametrize(("right", "count"), [(0, 120), (1, 10), (77, 120), (120, 120)])
def test_the_interval_of_a_share_agrees_with_scipy(right, count):
    expected = scipy.stats.binomtest(right, count).proportion_ci(0.95, method="wilson")
    assert wilson(right, count, 0.95) == pytest.approx((expected.low, expected.high))


@pytest.mark.parametrize(("wins", "losses", "count"), [(3, 9, 50), (0, 4, 40), (12, 0, 200), (70, 40, 300)])
def test_at_the_ends_of_the_paired_interval_the_score_statistic_is_the_quantile(wins, losses, count):
    """The nuisance parameter is found by maximising the likelihood numerically instead of by Tango's formula."""
    for difference, sign in zip(paired_score(wins, losses, count, 0.95), (1, -1), strict=True):

        def unlikely(lost, difference=difference):
            won = lost + difference
            shares = (won, lost, 1 - won - lost)
            counts = (wins, losses, count - wins - losses)
            return -sum(n * math.log(p) for n, p in zip(counts, shares, strict=True) if n)

        bounds = (max(0, -difference) + 1e-12, (1 - difference) / 2 - 1e-12)
        lost = scipy.optimize.minimize_scalar(unlikely, bounds=bounds, method="bounded", options={"xatol": 1e-12}).x
        error = math.sqrt(count * (2 * lost + difference * (1 - difference)))
        assert (wins - losses - count * difference) / error == pytest.approx(sign * Z, abs=1e-4)


@pytest.mark.parametrize("differing", [0.021, 0.05, 0.1])
def test_a_loss_of_the_margin_passes_no_more_often_than_promised(differing):
    """Exactly, by adding up the probabilities of all outcomes of 200 images whose true loss is 2 points."""
    count, margin = 200, 0.02
    shares = [(differing - margin) / 2, (differing + margin) / 2]
    passed = 0.0
    for wins in range(25):
        for losses in range(40):
            if -paired_score(wins, losses, count, 0.95)[0] <= margin:
                counts = [wins, losses, count - wins - losses]
                passed += scipy.stats.multinomial.pmf(counts, count, [*shares, 1 - sum(shares)])
    assert 0.01 < passed < 0.026


pairs = st.tuples(st.integers(0, 60), st.integers(0, 60), st.integers(0, 200)).filter(lambda three: sum(three) >= 2)


@settings(deadline=None, max_examples=200)
@given(pairs, st.floats(0.6, 0.999))
def test_the_paired_interval_mirrors_narrows_and_contains_the_observed_difference(three, confidence):
    wins, losses, _ = three
    count = sum(three)
    low, high = paired_score(wins, losses, count, confidence)
    assert -1 <= low <= (wins - losses) / count <= high <= 1
    assert paired_score(losses, wins, count, confidence) == pytest.approx((-high, -low))
    more = paired_score(4 * wins, 4 * losses, 4 * count, confidence)
    assert more[1] - more[0] < high - low


def test_models_that_agree_on_all_examples_have_the_closed_form_s_interval():
    high = least_score(50, 0.95)
    assert high == pytest.approx(Z**2 / (50 + Z**2))
    assert paired_score(0, 0, 50, 0.95) == pytest.approx((-high, high))


def test_a_difference_of_all_examples_ends_at_one():
    low, high = paired_score(20, 0, 20, 0.95)
    assert 0.5 < low < 0.99
    assert high == 1


def losing_text(count, spread, share, seed=0):
    """Per-document results whose true loss is 2 %, all of it in a share of the documents."""
    generator = np.random.default_rng(seed)
    tokens = np.maximum(20, np.round(400 * np.exp(generator.normal(0, spread, count))))
    teacher = 2.5 * tokens * np.exp(generator.normal(0, 0.15, count))
    losses = generator.normal(0, 0.02, count) + (generator.random(count) < share) * 0.02 / share
    return {
        "weights.tokens": tokens,
        "weights.bytes": 3.6 * tokens,
        "teacher.nll": teacher,
        "student.nll": teacher * (1 + losses),
        "teacher.correct": 0.45 * tokens,
        "student.correct": tokens * (0.45 - losses),
    }


def compared(arrays, metric="bits_per_byte", resamples=10_000):
    return Bootstrap(arrays, ["student", "teacher"], resamples).difference(metric, "student", "teacher", 0.95)


def reference(student, teacher, tokens):
    """The four intervals of sum(student) / sum(teacher) - 1, each written out: percentile, studentised, t, alike."""

    def ratio_of(mine, theirs):
        ratio = mine.sum() / theirs.sum() - 1
        residuals = mine - theirs - ratio * theirs
        # the sandwich estimator of a regression through the origin, clustered by document
        return ratio, residuals, math.sqrt((residuals**2).sum()) / theirs.sum()

    count, generator = len(student), np.random.default_rng(1)
    ratio, residuals, error = ratio_of(student, teacher)
    distances, studentised = [], []
    for _ in range(10_000):
        rows = generator.integers(0, count, count)
        again, _, its_error = ratio_of(student[rows], teacher[rows])
        distances.append(again - ratio)
        studentised.append((again - ratio) / its_error)
    percentile = np.quantile(distances, [0.025, 0.975])
    ends = -error * np.quantile(studentised, [0.975, 0.025])
    corrected = error * math.sqrt(count / (count - 1)) * scipy.stats.t.ppf(0.975, count - 1)
    effective = tokens.sum() ** 2 / (tokens**2).sum()
    spread = np.std(residuals / tokens, ddof=1) * math.sqrt((tokens**2).sum()) / teacher.sum()
    alike = spread * scipy.stats.t.ppf(0.975, effective - 1)
    low = min(percentile[0], ends[0], -corrected, -alike)
    high = max(percentile[1], ends[1], corrected, alike)
    return ratio, ratio + low, ratio + high


@pytest.mark.parametrize(("spread", "share"), [(0.0, 1.0), (0.0, 0.1), (0.7, 0.1), (1.5, 1.0)])
def test_the_interval_of_a_ratio_is_the_widest_of_four_written_out(spread, share):
    arrays = losing_text(120, spread, share)
    observed, low, high = reference(arrays["student.nll"], arrays["teacher.nll"], arrays["weights.tokens"])
    difference = compared(arrays)
    assert difference.observed == pytest.approx(observed)
    assert (difference.low, difference.high) == pytest.approx((low, high), abs=MONTE_CARLO * (high - low))


def test_the_interval_of_a_ratio_holds_scipy_s_percentile_and_bca_intervals(texts):
    arrays = texts(120, {"teacher": 2.3, "student": 2.4})
    difference = compared(arrays)
    for method in ("percentile", "BCa"):
        result = scipy.stats.bootstrap(
            (arrays["student.nll"], arrays["teacher.nll"]),
            lambda student, teacher, axis: student.sum(axis=axis) / teacher.sum(axis=axis) - 1,
            paired=True,
            method=method,
            n_resamples=5000,
            rng=np.random.default_rng(1),
        )
        slack = MONTE_CARLO * (difference.high - difference.low)
        assert difference.low <= result.confidence_interval.low + slack
        assert difference.high >= result.confidence_interval.high - slack


@pytest.mark.parametrize(("spread", "share"), [(0.0, 0.1), (1.5, 0.1)])
def test_a_loss_in_a_tenth_of_the_documents_passes_no_more_often_than_promised(spread, share):
    """600 test sets of 50 documents whose true loss is the margin; a percentile interval passes 6 to 20 % of them."""
    passed = sum(compared(losing_text(50, spread, share, seed), resamples=300).high <= 0.02 for seed in range(600))
    assert passed / 600 < 0.04


def test_swapping_the_models_mirrors_the_interval():
    arrays = losing_text(60, 0.7, 0.3)
    swapped = dict(arrays)
    for part in ("nll", "correct"):
        swapped[f"student.{part}"], swapped[f"teacher.{part}"] = arrays[f"teacher.{part}"], arrays[f"student.{part}"]
    forward, backward = compared(arrays, "accuracy"), compared(swapped, "accuracy")
    assert (backward.low, backward.high) == pytest.approx((-forward.high, -forward.low))
    assert backward.smallest == pytest.approx(forward.smallest)


@settings(deadline=None, max_examples=20)
@given(st.floats(0.1, 5), st.floats(0.5, 20))
def test_a_gain_of_both_models_changes_no_comparison(nats, factor):
    arrays = losing_text(60, 0.7, 0.3)
    shifted, scaled = dict(arrays), dict(arrays)
    for role in ("student", "teacher"):
        shifted[f"{role}.nll"] = arrays[f"{role}.nll"] + nats * arrays["weights.tokens"]
        scaled[f"{role}.nll"] = arrays[f"{role}.nll"] * factor
    for metric, changed in (("perplexity", shifted), ("nll", scaled), ("bits_per_byte", scaled)):
        before, after = compared(arrays, metric, 300), compared(changed, metric, 300)
        assert (after.low, after.high) == pytest.approx((before.low, before.high), rel=1e-6)


def test_more_documents_of_the_same_kind_narrow_the_interval():
    arrays = losing_text(60, 0.7, 0.3)
    few, many = compared(arrays), compared({name: np.tile(array, 4) for name, array in arrays.items()})
    assert many.observed == pytest.approx(few.observed)
    assert many.high - many.low < 0.7 * (few.high - few.low)


def test_fewer_examples_than_show_a_loss_in_a_tenth_of_them_are_too_few():
    assert 0.9 ** least_examples(0.95) < 0.025 < 0.9 ** (least_examples(0.95) - 1)
    assert "35 test examples are too few to tell: it takes 36" in compared(losing_text(35, 0.0, 1.0)).few
    assert compared(losing_text(36, 0.0, 1.0)).few == ""


def test_one_losing_document_does_not_say_how_much_is_lost():
    arrays = losing_text(50, 0.0, 1.0)
    arrays["student.nll"] = arrays["teacher.nll"].copy()
    arrays["student.nll"][7] *= 1.2
    difference = compared(arrays)
    assert difference.high == math.inf
    assert difference.few == "too few test examples carry the difference to tell how large it is"


def test_models_that_answer_alike_do_not_differ():
    arrays = losing_text(50, 1.0, 1.0)
    arrays["student.nll"] = arrays["teacher.nll"].copy()
    assert compared(arrays).observed == compared(arrays).low == compared(arrays).high == 0


@given(st.lists(st.floats(0.1, 1e6), min_size=1, max_size=50))
def test_the_effective_number_is_between_one_and_all(weights):
    assert 1 - 1e-9 <= effective_number(np.array(weights)) <= len(weights) + 1e-9


def test_the_smallest_detectable_loss_is_detected_in_80_percent_of_test_sets():
    differences = np.random.default_rng(0).normal(smallest_detectable(0.3, 0.95), 0.3, 20_000)
    assert np.mean(differences - Z * 0.3 > 0) == pytest.approx(0.8, abs=0.01)


def test_the_smallest_detectable_loss_of_a_simulated_test_set_is_detected_that_often():
    """The same with the gate's own intervals: losses of 100 documents, standard deviation 4 % of the teacher's."""
    generator = np.random.default_rng(1)
    true, detected = smallest_detectable(0.04 / math.sqrt(100), 0.95), 0
    for _ in range(300):
        losses = generator.normal(true, 0.04, 100)
        arrays = {"weights.tokens": np.ones(100), "teacher.nll": np.full(100, 5.0), "student.nll": 5 * (1 + losses)}
        detected += compared(arrays, "nll", resamples=300).low > 0
    assert 0.7 <= detected / 300 <= 0.87
