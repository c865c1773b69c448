import pytest

from understudy.evaluate.advice import advice, is_worse
from understudy.evaluate.statistics import Bootstrap
from understudy.objectives.labels import LabelsObjective
from understudy.objectives.logits import LogitsObjective


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
    ],
)
def test_weights_are_proposed_where_they_are_not_there_already(worse, objectives, proposed):
    sentences = advice(worse, "accuracy", 0.95, objectives)
    assert ("student.distill" in sentences[0]) is proposed
    assert "register.control=true" in sentences[-1]


def test_the_weights_of_now_are_named(worse):
    [first, *_] = advice(worse, "accuracy", 0.95, distilled_with(0.1, 0.9, 4.0))
    assert "labels 0.1, logits 0.9 at temperature 4" in first


@pytest.mark.parametrize("control", [0.7, 0.6])
def test_nothing_is_advised_where_the_control_is_not_better(images, control):
    arrays = images(600, {"teacher": 0.97, "student": 0.7, "control": control})
    bootstrap = Bootstrap(arrays, ["teacher", "student", "control"])
    assert advice(bootstrap, "accuracy", 0.95, distilled_with(0.1, 0.9, 4.0)) == []


def test_an_unmeasured_model_is_not_worse(images):
    bootstrap = Bootstrap(images(600, {"teacher": 0.97, "student": 0.7}), ["teacher", "student", "control"])
    assert not is_worse(bootstrap, "accuracy", 0.95, "student", "control")
