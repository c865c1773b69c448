import numpy as np
import pytest
import scipy.stats

from understudy.evaluate import resampling
from understudy.evaluate.agreement import macro_f1
from understudy.evaluate.answer_scores import Unmeasured
from understudy.evaluate.intervals import least_score
from understudy.evaluate.resampling import resampled_sums
from understudy.evaluate.statistics import Bootstrap

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
    interval = Bootstrap(arrays, ["student", "teacher"]).difference("calibration_error", "student", "teacher", 0.95)
    width = expected.high - expected.low
    assert (interval.low, interval.high) == pytest.approx(tuple(expected), abs=1.5 * MONTE_CARLO * width)


def test_a_paired_interval_is_narrower_than_an_unpaired_one(texts):
    arrays = texts(150, {"teacher": 2.3, "student": 2.32})
    bootstrap = Bootstrap(arrays, ["teacher", "student"])
    low, high = bootstrap.interval("nll", "student", 0.95)
    interval = bootstrap.difference("nll", "student", "teacher", 0.95)
    assert (interval.high - interval.low) * bootstrap.value("nll", "teacher") < (high - low) / 3


def test_the_resamples_do_not_depend_on_free_memory(monkeypatch):
    table = np.random.default_rng(3).random((37, 5))
    at_once = resampled_sums(table, 200)
    monkeypatch.setattr(resampling, "CELLS", 100)
    np.testing.assert_allclose(resampled_sums(table, 200), at_once, rtol=1e-13)


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
        ([np.inf], "is infinite: a target has a probability of 0"),
        ([np.inf, np.inf], "is infinite: a target has a probability of 0"),
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
    alone = Bootstrap({name: array for name, array in arrays.items() if not name.startswith("student")}, ["teacher"])
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


def answered(count, shares, seed=0):
    """Per-example results of models that answer some shares of examples with their label, the others at random."""
    generator = np.random.default_rng(seed)
    target = generator.choice(3, count, p=[0.6, 0.3, 0.1])
    guess, hardness = generator.integers(0, 3, count), generator.random(count)
    arrays = {"weights.tokens": np.ones(count), "weights.target": target.astype(float)}
    for role, share in shares.items():
        answer = np.where(hardness + generator.normal(0, 0.05, count) < share, target, guess)
        arrays |= {f"{role}.answer": answer.astype(float), f"{role}.correct": (answer == target).astype(float)}
    return arrays


def test_paired_differences_of_macro_f1_agree_with_scipy():
    arrays = answered(300, {"teacher": 0.9, "student": 0.8})
    target = arrays["weights.target"].astype(int)
    answers = [arrays[f"{role}.answer"].astype(int) for role in ("student", "teacher")]

    def difference(rows):
        rows = rows.astype(int)
        student, teacher = (macro_f1({"target": target[rows], "answer": answer[rows]}) for answer in answers)
        return student - teacher

    expected = scipy.stats.bootstrap(
        (np.arange(300),),
        difference,
        vectorized=False,
        method="percentile",
        n_resamples=3000,
        rng=np.random.default_rng(1),
    )
    interval = Bootstrap(arrays, ["student", "teacher"]).difference("macro_f1", "student", "teacher", 0.95)
    assert interval.observed == pytest.approx(difference(np.arange(300)))
    unseen = least_score(np.bincount(target).min(), 0.95) / 3 / 2  # of three labels, the rarest
    half = unseen + np.hypot(scipy.stats.t.ppf(0.975, 299) * expected.standard_error, unseen)
    low, high = expected.confidence_interval
    noise = 1.5 * MONTE_CARLO * (high - low)
    assert interval.low == pytest.approx(min(low, interval.observed - half), abs=noise)
    assert interval.high == pytest.approx(max(high, interval.observed + half), abs=noise)


@pytest.mark.parametrize(("metric", "width"), [("macro_f1", 1), ("balanced_accuracy", 1), ("matthews", 2)])
def test_models_that_agree_on_all_examples_are_not_proved_equal(metric, width):
    arrays = answered(400, {"teacher": 0.9})
    arrays |= {f"student.{name}": arrays[f"teacher.{name}"] for name in ("answer", "correct")}
    interval = Bootstrap(arrays, ["student", "teacher"]).difference(metric, "student", "teacher", 0.95)
    end = width / 3 * least_score(np.bincount(arrays["weights.target"].astype(int)).min(), 0.95)
    assert (interval.observed, interval.low, interval.high, interval.few) == (
        0,
        pytest.approx(-end),
        pytest.approx(end),
        "",
    )


def test_a_rare_label_is_too_few_examples_for_a_metric_of_answers():
    bootstrap = Bootstrap(answered(200, {"student": 0.8, "teacher": 0.9}), ["student", "teacher"])
    few = bootstrap.difference("macro_f1", "student", "teacher", 0.95).few
    assert few.startswith("30 test examples of the rarest label are too few to tell: it takes 36")
    assert bootstrap.difference("accuracy", "student", "teacher", 0.95).few == ""
