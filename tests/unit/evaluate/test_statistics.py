import numpy as np
import pytest
import scipy.stats

from understudy.evaluate import statistics
from understudy.evaluate.metrics import Unmeasured
from understudy.evaluate.statistics import Bootstrap, resampled_sums

MONTE_CARLO = 0.06  # of the interval's width: both sides draw 10 000 times, ends vary by about 2 % each


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


@pytest.mark.parametrize(
    ("nll", "words"),
    [
        ([np.inf], "is infinite: it gives what is there a probability of 0"),
        ([np.inf, np.inf], "is infinite: it gives what is there a probability of 0"),
        ([np.nan], "was not measured"),
        ([np.inf, np.nan], "was not measured"),
    ],
)
def test_an_infinite_loss_was_measured(images, nll, words):
    arrays = images(50, {"teacher": 0.9, "student": 0.8})
    arrays["student.nll"][: len(nll)] = nll
    bootstrap = Bootstrap(arrays, ["teacher", "student"])
    for name in ("nll", "perplexity"):
        with pytest.raises(Unmeasured, match=f"^the student's .* {words}$"):
            bootstrap.value(name, "student")
    alone = Bootstrap({name: each for name, each in arrays.items() if not name.startswith("student")}, ["teacher"])
    for role, name in (("student", "accuracy"), ("teacher", "accuracy"), ("teacher", "nll")):
        assert np.isfinite(bootstrap.interval(name, role, 0.95)).all()
    assert bootstrap.interval("nll", "teacher", 0.95) == alone.interval("nll", "teacher", 0.95)


def test_one_example_compares_nothing(images):
    with pytest.raises(Unmeasured, match="1 test examples are too few"):
        Bootstrap(images(1, {"teacher": 0.9}), ["teacher"]).value("accuracy", "teacher")


def test_no_share_is_taken_of_nothing():
    arrays = {"weights.tokens": np.ones(4), "teacher.nll": np.zeros(4), "student.nll": np.ones(4)}
    with pytest.raises(Unmeasured, match="the teacher's negative log-likelihood is 0"):
        Bootstrap(arrays, ["teacher", "student"]).difference("nll", "student", "teacher", 0.95)
