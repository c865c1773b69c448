import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import ttest_1samp

from understudy.evaluate.intervals import fieller
from understudy.evaluate.metrics import METRICS, columns
from understudy.evaluate.recovered import NO_GAP, recovered
from understudy.evaluate.statistics import Bootstrap

ROLES = ["teacher", "student", "control"]


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(5, 300), st.floats(-0.5, 1.5), st.sampled_from([0.8, 0.95, 0.99]))
def test_the_ends_are_where_scipy_s_t_test_begins_to_reject(seed, count, share, confidence):
    """The independent reference: a t-test of `above - r * below` for the ratio r of each end has p = 1 - confidence."""
    random = np.random.default_rng(seed)
    below = random.normal(1.0, 1.0, count)
    above = share * below + random.normal(0.0, 0.7, count)
    interval = fieller(above, below, confidence)
    rejects = ttest_1samp(below, 0.0).pvalue < 1 - confidence
    assert (interval is not None) == rejects
    if interval is None:
        return
    low, high = interval
    assert low <= above.sum() / below.sum() <= high
    for end in interval:
        assert ttest_1samp(above - end * below, 0.0).pvalue == pytest.approx(1 - confidence, rel=1e-4)
    assert ttest_1samp(above - (low + high) / 2 * below, 0.0).pvalue > 1 - confidence
    assume(high - low > 1e-6)
    assert ttest_1samp(above - (high + (high - low) / 10) * below, 0.0).pvalue < 1 - confidence


def test_the_interval_keeps_its_promise():
    """2,000 test sets of a student that recovers 60 %: that lies outside in 5 % of them, and on either side."""
    random, outside = np.random.default_rng(0), [0, 0]
    for _ in range(2000):
        below = random.gamma(2.0, 1.0, 200) - 1.0
        above = 0.6 * below + random.normal(0.0, 1.0, 200)
        low, high = fieller(above, below, 0.95)
        outside[0] += low > 0.6
        outside[1] += high < 0.6
    assert 70 < sum(outside) < 130  # 100 are expected, and 10 is a standard deviation
    assert min(outside) > 25


@pytest.mark.parametrize(
    ("kind", "metric", "values"),
    [
        ("images", "accuracy", {"teacher": 0.97, "student": 0.9, "control": 0.8}),
        ("images", "nll", {"teacher": 0.97, "student": 0.9, "control": 0.8}),
        ("texts", "bits_per_byte", {"teacher": 2.0, "student": 2.2, "control": 2.4}),
        ("texts", "nll", {"teacher": 2.0, "student": 2.2, "control": 2.4}),
        ("texts", "accuracy", {"teacher": 2.0, "student": 2.2, "control": 2.4}),
    ],
)
def test_the_share_is_that_of_the_metric_s_own_values(kind, metric, values, images, texts):
    arrays = {"images": images, "texts": texts}[kind](500, values)
    bootstrap = Bootstrap(arrays, ROLES)
    result = recovered(bootstrap, metric, 0.95)
    by_role = {role: bootstrap.value(metric, role) for role in ROLES}
    expected = (by_role["student"] - by_role["control"]) / (by_role["teacher"] - by_role["control"])
    assert result["share"] == pytest.approx(expected)
    low, high = result["interval"]
    assert low < expected < high
    tables = {role: columns(arrays, role) for role in ROLES}
    resampled = _bootstrapped(tables, METRICS[metric].ratio[0])
    assert (low, high) == pytest.approx(tuple(resampled), abs=0.25 * (high - low))
    assert f"recovered {100 * expected:.0f} % of the gap" in result["detail"]


def _bootstrapped(tables, part):
    """Percentiles of the share over resamples of the examples, by loops of plain sums: another way to the interval."""
    random, at = np.random.default_rng(1), ("nll", "correct").index(part)
    sums = {role: table[:, at] for role, table in tables.items()}
    shares = []
    for _ in range(1000):
        rows = random.integers(0, len(sums["student"]), len(sums["student"]))
        student, control, teacher = (sums[role][rows].sum() for role in ("student", "control", "teacher"))
        shares.append((student - control) / (teacher - control))
    return np.quantile(shares, [0.025, 0.975])


@pytest.mark.parametrize("teacher", [0.8, 0.7])
def test_without_a_better_teacher_there_was_no_gap_to_recover(images, teacher):
    arrays = images(500, {"teacher": teacher, "student": 0.85, "control": 0.8})
    assert recovered(Bootstrap(arrays, ROLES), "accuracy", 0.95) == {"share": None, "interval": None, "detail": NO_GAP}


def test_an_unmeasured_model_has_no_share(images):
    arrays = images(500, {"teacher": 0.97, "student": 0.9})
    assert recovered(Bootstrap(arrays, ROLES), "accuracy", 0.95) is None
    arrays = images(500, {"teacher": 0.97, "student": 0.9, "control": 0.8})
    arrays["control.correct"][3] = np.nan
    assert recovered(Bootstrap(arrays, ROLES), "accuracy", 0.95) is None


def test_a_student_worse_than_its_control_has_a_share_below_zero(images):
    arrays = images(800, {"teacher": 0.97, "student": 0.7, "control": 0.8})
    result = recovered(Bootstrap(arrays, ROLES), "accuracy", 0.95)
    assert result["share"] < 0
    assert "recovered −" in result["detail"]
