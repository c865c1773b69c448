import copy
import json
import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.evaluate.gate import Circumstances, decide
from understudy.evaluate.metrics import BINS
from understudy.recipe import Gate
from understudy.recipe.tasks import default_objectives

Z = 1.959963984540054


def rules(verdict):
    return {rule["rule"]: rule for rule in verdict["rules"]}


@pytest.fixture(scope="module")
def approvable(images, measured):
    """A student that passes everything; to be copied before it is changed."""
    arrays = images(900, {"teacher": 0.97, "student": 0.969})
    return measured(arrays, "image-classification"), arrays


def test_a_student_that_meets_every_rule_is_approved(approvable):
    verdict = decide(*approvable, Gate(), "accuracy")
    assert verdict["approved"]
    assert list(rules(verdict)) == ["measured", "quality-against-teacher", "quality-against-trivial", "size", "latency"]
    assert verdict["cautions"] == []
    assert json.loads(json.dumps(verdict, allow_nan=False))["margin"] == 0.02
    quality = rules(verdict)["quality-against-teacher"]
    assert quality["interval"][0] <= quality["observed"] <= quality["interval"][1] <= quality["threshold"]
    assert "within the margin of 2.00 points" in quality["detail"]


def test_losses_are_positive_when_the_student_is_worse(images, texts, measured):
    for arrays, task, metric in (
        (images(500, {"teacher": 0.97, "student": 0.9}), "image-classification", "accuracy"),
        (texts(200, {"teacher": 2.3, "student": 2.6}), "causal-lm", "bits_per_byte"),
    ):
        verdict = decide(measured(arrays, task), arrays, Gate(), metric)
        quality = rules(verdict)["quality-against-teacher"]
        assert not verdict["approved"]
        assert not quality["passed"]
        assert quality["interval"][0] > 0.02
        assert "over the margin" in quality["detail"]


def test_margins_are_shares_for_bits_per_byte(texts, measured):
    arrays = texts(400, {"teacher": 2.0, "student": 2.06})
    observed = rules(decide(measured(arrays, "causal-lm"), arrays, Gate(), "bits_per_byte"))
    assert observed["quality-against-teacher"]["observed"] == pytest.approx(0.03, abs=0.004)


def test_a_worse_champion_does_not_hide_a_better_teacher_and_the_other_way_round(images, measured):
    for teacher, champion, failing in ((0.97, 0.8, "teacher"), (0.8, 0.97, "champion")):
        arrays = images(800, {"teacher": teacher, "student": 0.85, "champion": champion})
        verdict = decide(measured(arrays, "image-classification"), arrays, Gate(), "accuracy")
        failed = [name for name, rule in rules(verdict).items() if not rule["passed"]]
        assert failed == [f"quality-against-{failing}"]


def test_a_student_too_large_or_too_slow_fails(approvable):
    measures, arrays = copy.deepcopy(approvable)
    measures["models"]["student"]["bytes"] = 2 * measures["models"]["teacher"]["bytes"]
    measures["models"]["student"]["latency"]["ratio_to_teacher"] = 1.01
    verdict = decide(measures, arrays, Gate(), "accuracy")
    assert not rules(verdict)["size"]["passed"]
    assert rules(verdict)["size"]["observed"] == pytest.approx(2)
    assert not rules(verdict)["latency"]["passed"]
    unlimited = Gate(max_size_ratio=None, max_latency_ratio=None)
    without = [rule for rule in rules(verdict) if rule not in ("size", "latency")]
    assert list(rules(decide(measures, arrays, unlimited, "accuracy"))) == without


def test_a_small_test_set_says_that_it_is_small(images, measured):
    arrays = images(20, {"teacher": 1.0, "student": 1.0})
    verdict = decide(measured(arrays, "image-classification"), arrays, Gate(), "accuracy")
    quality = rules(verdict)["quality-against-teacher"]
    least = Z**2 / (20 + Z**2)
    assert quality["interval"] == pytest.approx((-least, least))
    assert not quality["passed"]
    assert verdict["smallest_detectable"] == pytest.approx(least)
    assert "too small to see a loss of the margin" in quality["detail"]
    assert "16.11 points" in quality["detail"]


def test_a_sufficient_test_set_is_not_called_small(images, measured):
    """It is power that it lacks, and an interval beyond the margin, on either side, had none of that need."""
    for accuracy, passes in ((1.0, True), (0.1, False)):
        arrays = images(40, {"teacher": 0.8, "student": accuracy})
        verdict = decide(measured(arrays, "image-classification"), arrays, Gate(), "accuracy")
        quality = rules(verdict)["quality-against-teacher"]
        assert (verdict["smallest_detectable"] > Gate().margin, quality["passed"]) == (True, passes)
        assert "too small" not in quality["detail"]


def test_a_loss_of_exactly_the_margin_is_allowed_however_the_floats_fall(measured):
    correct = np.ones(200)
    arrays = {"weights.tokens": np.ones(200), "weights.bytes": np.zeros(200)}
    for role, values in (("teacher", correct), ("student", correct - 0.02)):
        arrays |= {f"{role}.nll": values, f"{role}.correct": values}
    verdict = decide(measured(arrays, "image-classification"), arrays, Gate(), "accuracy")
    assert rules(verdict)["quality-against-teacher"]["passed"]


def remove(*path):
    def change(measures, arrays):
        target = measures
        for key in path[:-1]:
            target = target[key]
        del target[path[-1]]

    return change


def with_value(value, *path):
    def change(measures, arrays):
        target = measures
        for key in path[:-1]:
            target = target[key]
        target[path[-1]] = value

    return change


def without_array(name):
    return lambda measures, arrays: arrays.pop(name)


def with_array(name, change):
    def apply(measures, arrays):
        arrays[name] = change(arrays[name].copy())

    return apply


def nan_at_5(array):
    array[5] = math.nan
    return array


def in_words(array):
    return np.array(["right"] * len(array))


QUALITY = {"quality-against-teacher", "quality-against-trivial"}
FAULTS = {
    "no models": (remove("models"), {"measured", "size", "latency"}),
    "models that are no mapping": (with_value([1], "models"), {"measured", "size", "latency"}),
    "no student": (remove("models", "student"), {"measured", "size", "latency"}),
    "no teacher": (remove("models", "teacher"), {"measured", "size", "latency"}),
    "no metric": (remove("models", "student", "metrics", "accuracy"), {"measured"}),
    "a metric of null": (with_value(None, "models", "student", "metrics", "accuracy"), {"measured"}),
    "a metric of NaN": (with_value(math.nan, "models", "teacher", "metrics", "accuracy"), {"measured"}),
    "another metric's value": (with_value(0.5, "models", "student", "metrics", "accuracy"), {"measured"}),
    "another number of examples": (with_value(7, "examples"), {"measured"}),
    "no bytes": (remove("models", "student", "bytes"), {"size"}),
    "bytes of the teacher null": (with_value(None, "models", "teacher", "bytes"), {"size"}),
    "zero bytes": (with_value(0, "models", "student", "bytes"), {"size"}),
    "no latency": (remove("models", "student", "latency"), {"latency"}),
    "a latency of NaN": (with_value(math.nan, "models", "teacher", "latency", "median_ms"), {"latency"}),
    "an infinite latency": (with_value(math.inf, "models", "teacher", "latency", "median_ms"), {"latency"}),
    "a latency in words": (with_value("fast", "models", "student", "latency", "median_ms"), {"latency"}),
    "a latency that was not compared": (remove("models", "student", "latency", "ratio_to_teacher"), {"latency"}),
    "a ratio of NaN": (with_value(math.nan, "models", "student", "latency", "ratio_to_teacher"), {"latency"}),
    "no results of the student": (without_array("student.correct"), {"measured", *QUALITY}),
    "no results of the teacher": (without_array("teacher.correct"), {"measured", "quality-against-teacher"}),
    "no weights": (without_array("weights.tokens"), {"measured", *QUALITY}),
    "NaN in the results": (with_array("student.correct", nan_at_5), {"measured", *QUALITY}),
    "no trivial predictor": (without_array("trivial.correct"), {"quality-against-trivial"}),
    "NaN of the trivial predictor": (with_array("trivial.correct", nan_at_5), {"quality-against-trivial"}),
    "unpaired": (with_array("teacher.correct", lambda array: array[1:]), {"measured", "quality-against-teacher"}),
    "words": (with_array("student.correct", in_words), {"measured", *QUALITY}),
    "a champion without results": (with_value({}, "models", "champion"), {"measured", "quality-against-champion"}),
    "a champion without measures": (
        lambda measures, arrays: arrays.update({"champion.correct": arrays["teacher.correct"]}),
        {"measured"},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("change", "failing"), FAULTS.values(), ids=FAULTS)
def test_a_missing_measurement_fails_its_rule_and_is_named(approvable, change, failing):
    measures, arrays = copy.deepcopy(approvable)
    change(measures, arrays)
    verdict = decide(measures, arrays, Gate(), "accuracy")
    assert not verdict["approved"]
    assert {name for name, rule in rules(verdict).items() if not rule["passed"]} == failing
    assert all(rules(verdict)[name]["detail"].startswith("Not passed, because ") for name in failing)
    json.dumps(verdict, allow_nan=False)


def test_nothing_at_all_is_a_verdict_too():
    verdict = decide({}, {}, Gate(), "bits_per_byte")
    assert not verdict["approved"]
    assert verdict["smallest_detectable"] is None
    assert not any(rule["passed"] for rule in verdict["rules"])


@pytest.mark.parametrize("count", [0, 1])
def test_fewer_than_two_examples_are_too_few(images, measured, count):
    arrays = images(2, {"teacher": 1.0, "student": 1.0})
    measures = measured(arrays, "image-classification") | {"examples": count}
    verdict = decide(measures, {name: array[:count] for name, array in arrays.items()}, Gate(), "accuracy")
    assert "too few" in rules(verdict)["quality-against-teacher"]["detail"]
    assert not verdict["approved"]


results = st.lists(st.booleans(), min_size=2, max_size=60).map(lambda values: np.array(values, dtype=float))


def quality_of(teacher, student, metric, margin):
    """The rule of quality against the teacher. One test example for each item of the two lists."""
    arrays = {"weights.tokens": np.ones(len(teacher))}
    for role, correct in (("teacher", teacher), ("student", student)):
        arrays |= {f"{role}.correct": correct, f"{role}.nll": 2.0 - correct}
        for part, values in (("sum", 0.4), ("correct", correct[:, None])):
            arrays[f"{role}.confidence_{part}"] = np.broadcast_to(values, (len(teacher), BINS)) / BINS
    return rules(decide({}, arrays, Gate(margin=margin), metric))["quality-against-teacher"]


@settings(deadline=None, max_examples=20)
@given(results, st.floats(0, 0.5), st.sampled_from(["accuracy", "nll"]))
def test_identical_models_pass_wherever_the_test_set_can_rule_out_the_margin(correct, margin, metric):
    quality = quality_of(correct, correct, metric, margin)
    if metric == "nll":
        assert quality["passed"] == (len(correct) >= 36)
        return
    assert quality["interval"][0] <= 0 <= quality["interval"][1]
    assert quality["passed"] == (Z**2 / (len(correct) + Z**2) <= margin)


@settings(deadline=None, max_examples=20)
@given(results, st.floats(0, 0.4), st.floats(0.01, 0.5))
def test_a_student_shifted_down_beyond_the_margin_fails(correct, margin, beyond):
    assert not quality_of(correct, correct - margin - beyond, "accuracy", margin)["passed"]


@settings(deadline=None, max_examples=20)
@given(
    st.lists(st.tuples(st.booleans(), st.booleans()), min_size=2, max_size=60),
    st.floats(0, 0.9),
    st.floats(0, 0.09),
    st.sampled_from(["accuracy", "nll"]),
)
def test_a_wider_margin_never_turns_a_pass_into_a_failure(pairs, margin, wider, metric):
    teacher, student = np.array(pairs, dtype=float).T
    narrow, wide = (quality_of(teacher, student, metric, allowed)["passed"] for allowed in (margin, margin + wider))
    assert wide or not narrow


@settings(deadline=None, max_examples=5)
@given(st.randoms(use_true_random=False))
def test_the_order_of_examples_does_not_change_the_observed_difference(images, random):
    arrays = images(40, {"teacher": 0.9, "student": 0.8})
    order = random.sample(range(40), 40)
    first, second = (
        rules(decide({}, ordered, Gate(), "accuracy"))["quality-against-teacher"]["observed"]
        for ordered in (arrays, {name: array[order] for name, array in arrays.items()})
    )
    assert first == pytest.approx(second, abs=1e-12)


@pytest.mark.parametrize(("count", "approved"), [(2, False), (50, False), (188, False), (189, True)])
def test_models_that_agree_on_few_examples_are_not_proved_to_agree(images, measured, count, approved):
    """The score interval of no difference at all: 3.84 / (189 + 3.84) is just below 0.02."""
    arrays = images(count, {"teacher": 1.1, "student": 1.1})
    verdict = decide(measured(arrays, "image-classification"), arrays, Gate(margin=0.02), "accuracy")
    assert rules(verdict)["quality-against-teacher"]["passed"] is approved


@pytest.mark.parametrize(("repeats", "approved"), [(1, False), (50, True)])
def test_few_documents_with_a_small_loss_do_not_rule_out_a_large_one(texts, measured, repeats, approved):
    losses = np.tile([1.0, 1.01, 1.015], repeats)
    arrays = texts(len(losses), {"teacher": 2.0, "student": 2.0})
    for name in ("weights.tokens", "weights.bytes"):
        arrays[name] = np.full(len(losses), arrays[name].max())
    arrays["teacher.nll"] = 2.0 * arrays["weights.tokens"]
    arrays["student.nll"] = arrays["teacher.nll"] * losses
    verdict = decide(measured(arrays, "causal-lm"), arrays, Gate(), "bits_per_byte")
    assert rules(verdict)["quality-against-teacher"]["passed"] == approved


def test_the_teachers_benefit_is_reported(images, measured):
    arrays = images(600, {"teacher": 0.97, "student": 0.969, "control": 0.95})
    verdict = decide(measured(arrays, "image-classification"), arrays, Gate(), "accuracy")
    expected = 100 * (arrays["student.correct"].mean() - arrays["control.correct"].mean())
    assert verdict["control"]["observed"] == pytest.approx(expected / 100)
    assert verdict["control"]["detail"].startswith("student minus control: ")


AGAINST_CONTROL = "quality-against-control"


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 120), st.integers(0, 120), st.floats(0.6, 0.99))
def test_a_student_is_refused_exactly_where_its_control_is_proved_better(images, measured, wins, losses, sure):
    """Of right and wrong answers McNemar's test decides, without an interval: (losses - wins)^2 / (losses + wins)."""
    arrays = images(400, {"teacher": 0.9, "student": 0.9})
    arrays |= {name.replace("student", "control"): array for name, array in arrays.items() if "student" in name}
    arrays["student.correct"] = np.repeat([1.0, 0.0, 1.0], [wins, losses, 400 - wins - losses])
    arrays["control.correct"] = np.repeat([0.0, 1.0, 1.0], [wins, losses, 400 - wins - losses])
    rule = rules(decide(measured(arrays, "image-classification"), arrays, Gate(confidence=sure), "accuracy"))
    quantile = NormalDist().inv_cdf((1 + sure) / 2)
    worse = losses > wins and (losses - wins) ** 2 > quantile**2 * (losses + wins)
    assert rule[AGAINST_CONTROL]["passed"] is not worse
    assert rule["measured"]["passed"]


def worse_than_control(texts, measured, candidate="student", teacher=1.0):
    arrays = texts(300, {"teacher": teacher, "student": 2.3, "control": 2.2})
    around = Circumstances(objectives=default_objectives("image-classification"), candidate=candidate)
    return decide(measured(arrays, "causal-lm"), arrays, Gate(margin=0.99), "bits_per_byte", around)


def test_a_student_worse_than_its_control_is_rejected_with_advice(texts, measured):
    """The margin lets it pass, and no other rule is against it."""
    verdict = worse_than_control(texts, measured, teacher=2.1)
    assert [name for name, rule in rules(verdict).items() if not rule["passed"]] == [AGAINST_CONTROL]
    assert verdict["headline"].startswith("rejected by quality-against-control")
    advice = " ".join(verdict["advice"])
    assert all(
        part in advice for part in ("weights and the temperature", "longer", "better teacher", "register.control")
    )


def test_a_student_too_far_behind_its_teacher_is_rejected_with_advice(images, measured):
    arrays = images(500, {"teacher": 0.97, "student": 0.8})
    measures = measured(arrays, "image-classification")
    assert decide(measures, arrays, Gate(), "accuracy")["advice"] == [
        "Train the student longer (student.train): its steps or its epochs.",
        "Take a larger student (student.model).",
    ]
    measures["confusion"] = {"labels": ["cat", "dog"], "counts": [[250, 0], [250, 0]]}
    assert decide(measures, arrays, Gate(), "accuracy")["advice"][0].startswith("The student answers cat for 100 %")


def test_a_control_too_far_behind_the_teacher_gets_no_advice_about_a_student(images, measured):
    arrays = images(500, {"teacher": 0.97, "student": 0.8, "control": 0.8})
    verdict = decide(
        measured(arrays, "image-classification"), arrays, Gate(), "accuracy", Circumstances(candidate="control")
    )
    assert not rules(verdict)["quality-against-teacher"]["passed"]
    assert verdict["advice"] == []


def test_a_control_instead_of_the_student_is_judged_and_named(texts, measured):
    verdict = worse_than_control(texts, measured, candidate="control", teacher=2.1)
    assert verdict["approved"]
    assert verdict["advice"] == []
    assert AGAINST_CONTROL not in rules(verdict)
    assert "control 0." in rules(verdict)["quality-against-teacher"]["detail"]
    assert verdict["headline"].startswith("control, trained without the teacher: approved: within 99 %")
    assert "no teacher had a part in its training" in " ".join(verdict["cautions"])


def test_a_teacher_that_the_control_beats_is_named_as_the_reason(texts, measured):
    verdict = worse_than_control(texts, measured, teacher=2.25)
    assert not rules(verdict)[AGAINST_CONTROL]["passed"]
    assert "distilling from it cannot help" in verdict["advice"][0]
    assert any(caution.startswith("The teacher is worse than the control") for caution in verdict["cautions"])


def test_a_control_that_was_not_measured_fails_closed(texts, measured):
    arrays = texts(100, {"teacher": 2.1, "student": 2.1, "control": 2.2})
    arrays["control.nll"][3] = np.nan
    verdict = decide(measured(arrays, "causal-lm"), arrays, Gate(), "bits_per_byte")
    failed = {name for name, rule in rules(verdict).items() if not rule["passed"]}
    assert failed == {"measured", AGAINST_CONTROL}
    json.dumps(verdict, allow_nan=False)


def test_a_difference_that_one_document_carries_shows_nobody_to_be_worse(texts, measured):
    arrays = texts(100, {"teacher": 2.1, "student": 2.1})
    arrays |= {name.replace("student", "control"): array.copy() for name, array in arrays.items() if "student" in name}
    arrays["control.nll"][3] *= 0.5
    verdict = decide(measured(arrays, "causal-lm"), arrays, Gate(), "bits_per_byte")
    assert rules(verdict)[AGAINST_CONTROL]["passed"]
    json.dumps(verdict, allow_nan=False)


def test_nothing_is_decided_by_the_calibration_error(approvable):
    verdict = decide(*approvable, Gate(), "calibration_error")
    detail = rules(verdict)["quality-against-teacher"]["detail"]
    assert not verdict["approved"]
    assert detail.startswith("Not passed, because no interval of the calibration error is reliable")


def test_the_teachers_benefit_is_summarised_in_a_word(images, measured):
    for control, word in ((0.9, "better"), (0.969, "no clear difference"), (1.1, "worse")):
        arrays = images(600, {"teacher": 0.97, "student": 0.969, "control": control})
        verdict = decide(measured(arrays, "image-classification"), arrays, Gate(), "accuracy")
        assert verdict["control"]["meaning"] == word
        assert verdict["control"]["detail"].endswith(f": {word}")
        assert bool(verdict["cautions"]) == (word == "worse")
    assert verdict["cautions"][0] == "The control, which was trained without the teacher, is better than the student."


def chance(measured, teacher, student, count=400):
    """The verdict on a student and a teacher that know little of four balanced classes."""
    generator = np.random.default_rng(0)
    labels = np.arange(count) % 4
    arrays = {"weights.tokens": np.ones(count), "weights.bytes": np.zeros(count)}
    for role, share in (("teacher", teacher), ("student", student)):
        correct = (generator.permutation(count) < share * count).astype(float)
        arrays |= {f"{role}.correct": correct, f"{role}.nll": np.full(count, 1.4)}
    arrays |= {"trivial.correct": (labels == 0).astype(float), "trivial.nll": np.full(count, math.log(4))}
    return decide(measured(arrays, "image-classification"), arrays, Gate(), "accuracy")


def test_a_student_of_a_teacher_at_chance_is_turned_down(measured):
    verdict = chance(measured, teacher=0.2475, student=0.27)
    failed = [name for name, rule in rules(verdict).items() if not rule["passed"]]
    assert "quality-against-trivial" in failed
    assert "its upper end is not below 0" in rules(verdict)["quality-against-trivial"]["detail"]
    assert verdict["cautions"][0].startswith("The teacher is not known to be better than the trivial predictor")
    assert verdict["cautions"][0].endswith("accuracy 24.75 % against 25.00 %.")


def test_a_student_that_learned_beats_the_trivial_predictor(measured):
    assert rules(chance(measured, teacher=0.6, student=0.6))["quality-against-trivial"]["passed"]


def test_text_is_compared_with_a_unigram_model(texts, measured):
    arrays = texts(100, {"teacher": 2.0, "student": 2.0})
    for nats, passed in ((6.0, True), (2.0, False)):
        arrays["trivial.nll"] = nats * arrays["weights.tokens"]
        rule = rules(decide(measured(arrays, "causal-lm"), arrays, Gate(), "bits_per_byte"))["quality-against-trivial"]
        assert rule["passed"] is passed


@pytest.mark.parametrize(("minimum", "passed"), [(0.9, True), (0.965, False), (0.99, False)])
def test_the_worse_end_of_the_student_s_interval_has_to_reach_the_minimum(approvable, minimum, passed):
    rule = rules(decide(*approvable, Gate(minimum=minimum), "accuracy"))["minimum"]
    assert rule["passed"] is passed
    assert rule["interval"][0] < 0.969 < rule["interval"][1]


def test_for_bits_per_byte_the_minimum_is_the_most(texts, measured):
    arrays = texts(100, {"teacher": 2.0, "student": 2.0})
    measures = measured(arrays, "causal-lm")
    observed = measures["models"]["student"]["metrics"]["bits_per_byte"]
    for factor, passed in ((1.2, True), (1.0, False), (0.8, False)):
        verdict = decide(measures, arrays, Gate(minimum=factor * observed), "bits_per_byte")
        assert rules(verdict)["minimum"]["passed"] is passed


def test_an_unmeasured_metric_reaches_no_minimum(approvable):
    measures, arrays = copy.deepcopy(approvable)
    del arrays["student.correct"]
    rule = rules(decide(measures, arrays, Gate(minimum=0.1), "accuracy"))["minimum"]
    assert rule["detail"].startswith("Not passed, because ")


@pytest.mark.parametrize(("champion", "passes"), [(0.9, True), (0.99, False)])
def test_a_champion_of_another_origin_is_compared_by_its_answers_alone(images, measured, champion, passes):
    """It answered with labels: there are right and wrong answers, no probabilities, and no measures."""
    arrays = images(900, {"teacher": 0.93, "student": 0.93, "theirs": champion})
    arrays["champion.correct"] = arrays["theirs.correct"]
    arrays = {name: array for name, array in arrays.items() if not name.startswith("theirs.")}
    measures = measured(
        {name: array for name, array in arrays.items() if "champion" not in name}, "image-classification"
    )
    around = Circumstances(foreign="digits version 3")
    verdict = decide(measures, arrays, Gate(), "accuracy", around)
    assert rules(verdict)["quality-against-champion"]["passed"] is passes
    assert rules(verdict)["measured"]["passed"]
    assert verdict["cautions"] == [
        "The champion, digits version 3, was registered by other means: it was compared by its answers to this test "
        "split, and its size and speed were not measured."
    ]
    assert ("within 2 points of its teacher and of the champion" in verdict["headline"]) is passes
    by_nll = rules(decide(measures, arrays, Gate(metric="nll"), "nll", around))["quality-against-champion"]
    assert not by_nll["passed"]
    assert "the champion's negative log-likelihood was not measured" in by_nll["detail"]


def test_cautions_about_rejections_and_copies_come_first_and_fail_nothing(approvable):
    around = Circumstances(rejections="Rejected before.", copies="Of 900 20 differ.", judged=10)
    verdict = decide(*approvable, Gate(), "accuracy", around)
    assert verdict["approved"]
    assert verdict["cautions"][:2] == ["Rejected before.", "Of 900 20 differ."]
    assert len(verdict["cautions"]) == 3


@pytest.mark.parametrize(("slowest", "warned"), [(30.0, False), (59.9, False), (61.0, True), (1680.0, True)])
def test_latencies_that_vary_as_on_a_busy_machine_are_a_caution(images, measured, slowest, warned):
    arrays = images(900, {"teacher": 0.93, "student": 0.93})
    measures = measured(arrays, "image-classification")
    measures["models"]["student"]["latency"] |= {"min_ms": 20.0, "median_ms": 25.0, "p95_ms": slowest}
    verdict = decide(measures, arrays, Gate(), "accuracy")
    assert verdict["approved"]
    assert [caution.startswith("Latencies vary too much") for caution in verdict["cautions"]] == [True] * warned
    if slowest == 1680.0:
        assert "the student's are from 20 to 1,680 ms" in verdict["cautions"][0]


@pytest.mark.parametrize(
    ("role", "concerned"), [("teacher", True), ("student", True), ("control", False), ("champion", False)]
)
def test_a_noisy_latency_of_either_side_of_the_ratio_makes_headline_and_rule_unreliable(
    images, measured, role, concerned
):
    arrays = images(900, dict.fromkeys(("teacher", "student", "control", "champion"), 0.93))
    measures = measured(arrays, "image-classification")
    measures["models"][role]["latency"] |= {"min_ms": 1.0, "p95_ms": 28.5}
    verdict = decide(measures, arrays, Gate(), "accuracy")
    assert rules(verdict)["latency"]["passed"]
    assert ("not reliable" in rules(verdict)["latency"]["detail"]) is concerned
    assert ("latency not reliable" in verdict["headline"]) is concerned
    assert "latency" not in decide(measures, arrays, Gate(max_latency_ratio=None), "accuracy")["headline"]


@pytest.mark.parametrize("odd", [None, 0, -1, 10**400, "fast", float("nan"), float("inf"), [1]])
def test_odd_latencies_give_no_caution_and_no_error(images, measured, odd):
    arrays = images(900, {"teacher": 0.93, "student": 0.93})
    measures = measured(arrays, "image-classification")
    measures["models"]["student"]["latency"] |= {"min_ms": odd, "p95_ms": 3.0}
    assert decide(measures, arrays, Gate(), "accuracy")["cautions"] == []
