import numpy as np
import pytest

from understudy.evaluate.cautions import cautions, meaning, training_losses
from understudy.evaluate.metrics import METRICS
from understudy.evaluate.statistics import Bootstrap, Difference
from understudy.objectives.labels import LabelsObjective
from understudy.objectives.logits import LogitsObjective
from understudy.recipe.objectives import WeightSchedule

DISTILL = (LabelsObjective(type="labels", weight=0.1), LogitsObjective(type="logits", weight=0.9))


def caution_texts(images, training):
    arrays = images(300, {"teacher": 0.9, "student": 0.9})
    return cautions(Bootstrap(arrays, ["teacher", "student", "trivial"]), "accuracy", 0.95, None, training)


def test_a_training_loss_far_below_the_test_loss_is_overfitting(images):
    arrays = images(300, {"teacher": 0.9, "student": 0.9})
    arrays["student.nll"] = np.full(300, 3.1)
    bootstrap = Bootstrap(arrays, ["teacher", "student", "trivial"])
    texts = cautions(bootstrap, "accuracy", 0.95, None, {"student": 0.002})
    assert texts == ["The student may be overfitted: its loss is 0.002 in training and 3.1 on the test split."]


@pytest.mark.parametrize("training", [{}, {"student": 2.0}, {"student": float("nan")}, {"control": 0.001}])
def test_there_is_no_caution_without_a_large_or_known_difference(images, training):
    assert caution_texts(images, training) == []


def test_labels_that_no_test_example_has_are_named(images):
    arrays = images(300, {"teacher": 0.9, "student": 0.9})
    bootstrap = Bootstrap(arrays, ["teacher", "student", "trivial"])
    counts = [[3, 0, 0], [0, 0, 0], [1, 0, 4]]
    [text] = cautions(bootstrap, "accuracy", 0.95, None, {}, {"labels": ["a", "lonely", "c"], "counts": counts})
    assert text == "Labels without a test example, about which nothing is known (1 of 3 labels): lonely."
    labels = [str(number) for number in range(9)]
    [many] = cautions(bootstrap, "accuracy", 0.95, None, {}, {"labels": labels, "counts": [[0] * 9] * 9})
    assert many.endswith("of 9 labels): 0, 1, 2, 3, 4, and more.")


@pytest.mark.parametrize("steps", [{"student": 9}, {"student": 9, "control": 9, "teacher": 4}, {}])
def test_there_is_no_caution_about_models_trained_equally_long(images, steps):
    bootstrap = Bootstrap(images(300, {"teacher": 0.9, "student": 0.9}), ["teacher", "student", "trivial"])
    assert cautions(bootstrap, "accuracy", 0.95, None, {}, None, steps) == []


def test_a_control_that_ended_early_is_named(images):
    bootstrap = Bootstrap(images(300, {"teacher": 0.9, "student": 0.9}), ["teacher", "student", "trivial"])
    [text] = cautions(bootstrap, "accuracy", 0.95, None, {}, None, {"student": 1200, "control": 80})
    assert text.startswith("The student was trained for 1,200 steps and its control for 80, since one of them ended")


def test_the_last_tenth_of_the_curve_counts_and_the_students_is_a_bound():
    history = [{"loss": 5.0}] * 18 + [{"loss": 0.1}, {"loss": 0.3}]
    losses = training_losses({"teacher": history, "student": history, "control": []}, DISTILL)
    assert losses == pytest.approx({"teacher": 0.2, "student": 2.0})
    skipped = [*history, {"loss": 9.0, "skipped": 1}, {"skipped": 2}]
    assert training_losses({"teacher": skipped}, DISTILL) == {"teacher": losses["teacher"]}
    assert "student" not in training_losses({"student": history}, DISTILL[1:])


@pytest.mark.parametrize(("ends", "expected"), [((0.5, 0.1), {"student": 2.0}), ((0.0, 1.0), {})])
def test_the_smaller_end_of_a_schedule_bounds_the_students_loss(ends, expected):
    weight = WeightSchedule(start=ends[0], end=ends[1])
    objectives = (LabelsObjective(type="labels", weight=weight), *DISTILL[1:])
    assert training_losses({"student": [{"loss": 0.2}]}, objectives) == pytest.approx(expected)


def test_better_and_worse_need_an_interval_without_zero():
    for low, high, accuracy, nll in (
        (0.1, 0.2, "better", "worse"),
        (-0.2, -0.1, "worse", "better"),
        (-0.1, 0.1, "no clear difference", "no clear difference"),
    ):
        difference = Difference((low + high) / 2, low, high, 0.1)
        assert meaning(difference, METRICS["accuracy"]) == accuracy
        assert meaning(difference, METRICS["nll"]) == nll
    assert meaning(Difference(0.1, 0.1, 0.2, 0.1, few="few"), METRICS["nll"]) == "too few to tell"
    assert meaning(Difference(0.1, 0.1, 0.2, 0.1), METRICS["calibration_error"]) == "not to be relied on"
