import pytest

from understudy.evaluate.advice import advice, is_worse
from understudy.evaluate.quality import Rule, failed
from understudy.evaluate.statistics import Bootstrap
from understudy.objectives.jsd import JSDObjective
from understudy.objectives.labels import LabelsObjective
from understudy.objectives.logits import LogitsObjective
from understudy.objectives.logits_mse import LogitsMSEObjective
from understudy.recipe.objectives import WeightSchedule


def distilled_with(labels, logits, temperature):
    return (
        LabelsObjective(type="labels", weight=labels),
        LogitsObjective(type="logits", weight=logits, temperature=temperature),
    )


@pytest.fixture(scope="module")
def worse(images):
    return Bootstrap(images(600, {"teacher": 0.97, "student": 0.7, "control": 0.8}), ["teacher", "student", "control"])


@pytest.mark.parametrize(
    ("objectives", "proposed"),
    [
        (distilled_with(0.1, 0.9, 4.0), True),
        (distilled_with(0.5, 0.5, 4.0), True),
        (distilled_with(0.1, 0.9, 1.0), True),
        (distilled_with(0.5, 0.5, 1.0), False),
        (distilled_with(WeightSchedule(start=0.0, end=0.2), 0.9, 1.0), True),
        (distilled_with(WeightSchedule(start=0.0, end=1.0), WeightSchedule(start=1.0, end=0.0), 1.0), False),
    ],
)
def test_weights_are_proposed_where_they_are_not_there_already(worse, objectives, proposed):
    sentences = advice(worse, "accuracy", 0.95, objectives)
    assert ("student.distill" in sentences[0]) is proposed
    assert "register.control=true" in sentences[-1]


def test_the_weights_of_now_are_named(worse):
    [first, *_] = advice(worse, "accuracy", 0.95, distilled_with(0.1, 0.9, 4.0))
    assert "labels 0.1, logits 0.9 at temperature 4" in first
    others = (LogitsMSEObjective(type="logits_mse", weight=0.2), JSDObjective(type="jsd", weight=0.7, temperature=3.0))
    [first, *_] = advice(worse, "accuracy", 0.95, others)
    assert "labels 0, logits_mse 0.2, jsd 0.7 at temperature 3; try labels" in first


def test_both_ends_of_a_schedule_are_named(worse):
    [first, *_] = advice(worse, "accuracy", 0.95, distilled_with(0.1, WeightSchedule(start=1.0, end=0.2), 4.0))
    assert "labels 0.1, logits 1 to 0.2 at temperature 4" in first


@pytest.mark.parametrize("control", [0.7, 0.6])
def test_nothing_is_advised_where_the_control_is_not_better(images, control):
    arrays = images(600, {"teacher": 0.97, "student": 0.7, "control": control})
    bootstrap = Bootstrap(arrays, ["teacher", "student", "control"])
    assert advice(bootstrap, "accuracy", 0.95, distilled_with(0.1, 0.9, 4.0)) == []


def against(low, high, passed=False):
    return Rule("quality-against-teacher", passed, "", (low + high) / 2, (low, high), 0.05)


def advised(images, rule, confusion=None, control=0.7):
    arrays = images(600, {"teacher": 0.97, "student": 0.7, "control": control})
    bootstrap = Bootstrap(arrays, ["teacher", "student", "control"])
    return advice(bootstrap, "accuracy", 0.95, distilled_with(0.5, 0.5, 1.0), rule, confusion)


def test_a_student_too_far_behind_its_teacher_is_to_be_trained_longer_or_larger(images):
    assert advised(images, against(0.2, 0.3)) == [
        "Train the student longer (student.train): its steps or its epochs.",
        "Take a larger student (student.model).",
    ]


def test_where_the_margin_is_not_ruled_out_more_test_data_comes_first(images):
    assert advised(images, against(0.05, 0.3))[0].startswith("Give more test data (data.test)")
    assert not any("test data" in sentence for sentence in advised(images, against(0.051, 0.3)))


@pytest.mark.parametrize("rule", [None, against(0.0, 0.04, passed=True), failed("quality-against-teacher", 0.05, "")])
def test_nothing_is_advised_about_a_rule_that_passed_or_could_not_be_decided(images, rule):
    assert advised(images, rule) == []


@pytest.mark.parametrize(
    ("counts", "hardly_learned"),
    [
        ([[50, 0, 0], [30, 0, 0], [18, 0, 2]], True),
        ([[50, 0, 0], [24, 6, 0], [15, 0, 5]], False),
        ([[96, 0, 0], [1, 1, 0], [1, 0, 1]], False),  # one label is frequent, and the others are learned in part
    ],
)
def test_a_student_that_gives_one_label_for_nearly_everything_is_told_so(images, counts, hardly_learned):
    confusion = {"labels": ["cat", "dog", "hen"], "counts": counts}
    [first, second] = advised(images, against(0.2, 0.3), confusion)
    told = (
        "The student answers cat for 98 % of the test examples, of which 50 % have this label: it has hardly learned. "
        "Train it for more steps (student.train), or with a higher learning rate "
        "(student.train.optimizer.learning_rate)."
    )
    assert first == (told if hardly_learned else "Train the student longer (student.train): its steps or its epochs.")
    assert second == "Take a larger student (student.model)."
    worse = advised(images, against(0.2, 0.3), confusion, control=0.8)
    assert (worse[0] == told) is hardly_learned
    assert "register.control=true" in worse[-1]
    assert advised(images, against(0.0, 0.04, passed=True), confusion) == []


def test_an_unmeasured_model_is_not_worse(images):
    bootstrap = Bootstrap(images(600, {"teacher": 0.97, "student": 0.7}), ["teacher", "student", "control"])
    assert not is_worse(bootstrap, "accuracy", 0.95, "student", "control")
