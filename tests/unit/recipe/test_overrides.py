"""Values that an override replaces; test_file.py tests their syntax and errors."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.errors import InputError
from understudy.recipe import Train
from understudy.recipe.file import from_values
from understudy.recipe.yaml import parse
from understudy.train.optimizers import learning_rate

RECIPE = """\
name: digits
task: image-classification
data: {source: {type: digits}}
teacher: {model: {type: vit}, train: {epochs: 30, schedule: {warmup: 40}}}
student: {model: {type: vit}, train: {steps: 600, schedule: {warmup: 40, decay: linear}}}
"""


def trained(*overrides: str) -> tuple[Train, Train]:
    """How teacher and student are trained."""
    values: Any = parse(RECIPE).data
    recipe = from_values(values, overrides, "here")
    assert recipe.teacher.train
    return recipe.teacher.train, recipe.student.train


def test_one_step_is_one_override() -> None:
    teacher, student = trained("teacher.train.steps=1", "student.train.steps=1")
    assert (teacher.steps, teacher.epochs, teacher.schedule.warmup) == (1, None, 0)
    assert (student.steps, student.schedule.warmup, student.schedule.decay) == (1, 0, "linear")


@given(st.integers(1, 100))
def test_the_files_warm_up_is_as_long_as_an_overrides_steps_let_it_be(steps: int) -> None:
    assert trained(f"student.train.steps={steps}")[1].schedule.warmup == min(40, steps - 1)


def test_a_length_takes_the_files_other_one_back() -> None:
    _, student = trained("student.train.epochs=2")
    assert (student.steps, student.epochs, student.schedule.warmup) == (None, 2, 40)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("student.train.steps=9", "student.train.epochs=9"), "give exactly one of steps and epochs"),
        (("student.train.steps=null",), "give exactly one of steps and epochs"),
        (("student.train.steps=9", "student.train.schedule.warmup=9"), "9 of 9 steps; leave some to train in"),
        (("student.train.schedule.warmup=600",), "600 of 600 steps; leave some to train in"),
        (("student.train={steps: 9, schedule: {warmup: 9}}",), "9 of 9 steps; leave some to train in"),
    ],
)
def test_what_is_asked_for_is_not_changed_but_refused(overrides: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        trained(*overrides)


def test_a_file_that_contradicts_itself_is_refused_whatever_else_is_overridden() -> None:
    values: Any = parse(RECIPE.replace("warmup: 40, decay", "warmup: 600, decay")).data
    with pytest.raises(InputError, match="600 of 600 steps"):
        from_values(values, ["seed=1", "teacher.train.steps=1"], "here")


def test_a_warm_up_that_epochs_turn_out_too_short_for_still_reaches_the_peak() -> None:
    train, _ = trained("teacher.train.epochs=1")
    rates = [learning_rate(step, 23, 1.0, train.schedule) for step in range(23)]
    assert max(rates) == 1.0
    assert learning_rate(0, 1, 1.0, train.schedule) == 1.0
