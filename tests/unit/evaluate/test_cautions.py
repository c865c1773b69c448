import numpy as np
import pytest

from understudy.evaluate.cautions import cautions, meaning, training_losses
from understudy.evaluate.metrics import METRICS
from understudy.evaluate.statistics import Bootstrap, Difference
from understudy.objectives.labels import LabelsObjective
from understudy.objectives.logits import LogitsObjective

DISTILL = (LabelsObjective(type="labels", weight=0.1), LogitsObjective(type="logits", weight=0.9))


def said(images, training):
    arrays = images(300, {"teacher": 0.9, "student": 0.9})
    return cautions(Bootstrap(arrays, ["teacher", "student", "trivial"]), "accuracy", 0.95, None, training)


def test_a_training_loss_far_below_the_test_loss_is_overfitting(images):
    arrays = images(300, {"teacher": 0.9, "student": 0.9})
    arrays["student.nll"] = np.full(300, 3.1)
    bootstrap = Bootstrap(arrays, ["teacher", "student", "trivial"])
    found = cautions(bootstrap, "accuracy", 0.95, None, {"student": 0.002})
    assert found == ["The student may be overfitted: its loss is 0.002 in training and 3.1 on the test split."]


@pytest.mark.parametrize("training", [{}, {"student": 2.0}, {"student": float("nan")}, {"control": 0.001}])
def test_nothing_is_said_of_what_is_not_far_below_or_not_known(images, training):
    assert said(images, training) == []


def test_labels_that_no_test_example_has_are_named(images):
    arrays = images(300, {"teacher": 0.9, "student": 0.9})
    bootstrap = Bootstrap(arrays, ["teacher", "student", "trivial"])
    counts = [[3, 0, 0], [0, 0, 0], [1, 0, 4]]
    [found] = cautions(bootstrap, "accuracy", 0.95, None, {}, {"labels": ["a", "lonely", "c"], "counts": counts})
    assert found == "Labels without a test example, about which nothing is known (1 of 3 labels): lonely."
    labels = [str(number) for number in range(9)]
    [many] = cautions(bootstrap, "accuracy", 0.95, None, {}, {"labels": labels, "counts": [[0] * 9] * 9})
    assert many.endswith("of 9 labels): 0, 1, 2, 3, 4, and more.")


@pytest.mark.parametrize("steps", [{"student": 9}, {"student": 9, "control": 9, "teacher": 4}, {}])
def test_nothing_is_said_of_models_that_were_trained_equally_long(images, steps):
    bootstrap = Bootstrap(images(300, {"teacher": 0.9, "student": 0.9}), ["teacher", "student", "trivial"])
    assert cautions(bootstrap, "accuracy", 0.95, None, {}, None, steps) == []


def test_a_control_that_ended_early_is_named(images):
    bootstrap = Bootstrap(images(300, {"teacher": 0.9, "student": 0.9}), ["teacher", "student", "trivial"])
    [found] = cautions(bootstrap, "accuracy", 0.95, None, {}, None, {"student": 1200, "control": 80})
    assert found.startswith("The student was trained for 1,200 steps and its control for 80, since one of them ended")


def test_the_last_tenth_of_the_curve_counts_and_the_students_is_a_bound():
    history = [{"loss": 5.0}] * 18 + [{"loss": 0.1}, {"loss": 0.3}]
    found = training_losses({"teacher": history, "student": history, "control": []}, DISTILL)
    assert found == pytest.approx({"teacher": 0.2, "student": 2.0})
    skipped = [*history, {"loss": 9.0, "skipped": 1}, {"skipped": 2}]
    assert training_losses({"teacher": skipped}, DISTILL) == {"teacher": found["teacher"]}
    assert "student" not in training_losses({"student": history}, DISTILL[1:])


def test_better_and_worse_need_an_interval_without_zero():
    for low, high, accuracy, nll in (
        (0.1, 0.2, "better", "worse"),
        (-0.2, -0.1, "worse", "better"),
        (-0.1, 0.1, "no clear difference", "no clear difference"),
    ):
        seen = Difference((low + high) / 2, low, high, 0.1)
        assert meaning(seen, METRICS["accuracy"]) == accuracy
        assert meaning(seen, METRICS["nll"]) == nll
    assert meaning(Difference(0.1, 0.1, 0.2, 0.1, few="few"), METRICS["nll"]) == "too few to tell"
    assert meaning(Difference(0.1, 0.1, 0.2, 0.1), METRICS["calibration_error"]) == "not to be relied on"
