"""The squared difference of logits and of z-scores: against numpy in double precision, and what does not change it."""

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.unit.objectives.closed_forms import evaluated, losses, section
from tests.unit.objectives.test_fused import Array, cases, unhurried
from tests.unit.objectives.test_position_laws import Case, finite
from understudy.data.loader import IGNORED
from understudy.models.outputs import OutputShapes
from understudy.objectives.batch import Batch
from understudy.objectives.fused import write_gradient
from understudy.objectives.logits_mse import EPSILON

RAW, STANDARDIZED = section("logits_mse"), section("logits_mse", standardize=True)


def z_scores(logits: Array) -> Array:
    return (logits - logits.mean()) / (logits.std() + EPSILON)


def squared(student: Array, teacher: Array, labels: Array, *, standardize: bool) -> float:
    """Row by row, over the classes that the teacher does not rule out."""
    total = 0.0
    for ours, theirs, label in zip(student, teacher, labels, strict=True):
        compared = theirs > -math.inf
        if label != IGNORED:
            pair = ours[compared], theirs[compared]
            first, second = map(z_scores, pair) if standardize else pair
            total += ((first - second) ** 2).mean()
    return total


@pytest.mark.parametrize("standardize", [False, True])
@unhurried
@given(case=cases())
def test_the_loss_is_that_of_its_formula(standardize: bool, case: Case) -> None:
    """A class that the teacher rules out is left out, whatever the student's logit."""
    student, teacher, labels = case
    loss, gradient = evaluated(STANDARDIZED if standardize else RAW, student, teacher, labels)
    expected = squared(student.numpy(), teacher.numpy(), labels.numpy(), standardize=standardize)
    assert loss == pytest.approx(expected, rel=1e-10, abs=1e-10)
    assert not gradient[teacher == -math.inf].any()


@unhurried
@given(cases(), st.floats(-5, 5), st.floats(0.5, 10))
def test_z_scores_do_not_depend_on_a_model_s_mean_and_scale(case: Case, shift: float, scale: float) -> None:
    """The gradient is divided by the student's scale."""
    student, teacher, labels = finite(case)
    assume(min(student.std(-1).min(), teacher.std(-1).min()) > 0.1)
    expected, gradient = evaluated(STANDARDIZED, student, teacher, labels)
    loss, of_logits = evaluated(STANDARDIZED, scale * student + shift, teacher, labels)
    assert loss == pytest.approx(expected, rel=1e-4, abs=1e-4)
    torch.testing.assert_close(scale * of_logits, gradient, rtol=1e-3, atol=1e-3)
    loss, _ = evaluated(STANDARDIZED, student, scale * teacher + shift, labels)
    assert loss == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_logits_themselves_depend_on_both() -> None:
    teacher, labels = torch.tensor([[1.0, 2.0, 4.0]]), torch.tensor([0])
    assert evaluated(RAW, teacher + 1, teacher, labels)[0] == pytest.approx(1)
    assert evaluated(RAW, 2 * teacher, teacher, labels)[0] == pytest.approx(7)


def test_of_z_scores_it_is_2_less_twice_the_correlation() -> None:
    random = torch.Generator().manual_seed(0)
    student, teacher = (torch.randn(1, 9, generator=random, dtype=torch.double) for _ in "ab")
    correlation = np.corrcoef(student.numpy(), teacher.numpy())[0, 1]
    assert evaluated(STANDARDIZED, student, teacher, torch.tensor([0]))[0] == pytest.approx(2 - 2 * correlation)


def test_it_is_twice_the_limit_of_logits_at_a_high_temperature() -> None:
    random = torch.Generator().manual_seed(0)
    student, teacher = (torch.randn(4, 9, generator=random, dtype=torch.double) for _ in "ab")
    student, teacher = (logits - logits.mean(-1, keepdim=True) for logits in (student, teacher))
    labels = torch.zeros(4, dtype=torch.long)
    limit, gradient = evaluated(section("logits", temperature=1e4), student, teacher, labels)
    loss, of_logits = evaluated(RAW, student, teacher, labels)
    assert loss == pytest.approx(2 * limit, rel=1e-3)
    torch.testing.assert_close(of_logits, 2 * gradient, rtol=1e-2, atol=1e-4)


def test_equal_logits_have_z_scores_of_0_and_a_finite_gradient_towards_the_teacher() -> None:
    student, teacher = torch.zeros(1, 3), torch.tensor([[1.0, 2.0, 4.0]])
    loss, gradient = evaluated(STANDARDIZED, student, teacher, torch.tensor([0]))
    assert loss == pytest.approx(1)
    assert gradient.isfinite().all()
    assert gradient.argmin() == 2
    assert evaluated(STANDARDIZED, student, student, torch.tensor([0]))[0] == 0


def test_a_student_s_logit_of_minus_infinity_alone_is_an_infinite_loss() -> None:
    student, teacher = torch.tensor([[1.0, -math.inf]]), torch.tensor([[1.0, 2.0]])
    assert evaluated(RAW, student, teacher, torch.tensor([0]))[0] == math.inf
    assert not math.isfinite(evaluated(STANDARDIZED, student, teacher, torch.tensor([0]))[0])


@pytest.mark.parametrize("standardize", [False, True])
def test_several_teachers_have_the_mean_of_their_gradients(standardize: bool) -> None:
    """That of the squared distance to their mean; a teacher that is not named has no say."""
    random = torch.Generator().manual_seed(0)
    student, first, second = (torch.randn(4, 9, generator=random, dtype=torch.double) for _ in "abc")
    labels = torch.tensor([0, 1, IGNORED, 2])
    chosen = section("logits_mse", standardize=standardize, teacher=("first", "second"))
    names = dict.fromkeys(("first", "odd", "second"), OutputShapes())
    gradient, odd = torch.empty_like(student), torch.full_like(student, math.nan)
    write_gradient(losses(chosen, names), student, (first, odd, second), Batch(labels, labels), gradient)
    alone = STANDARDIZED if standardize else RAW
    mean = sum(evaluated(alone, student, teacher, labels)[1] for teacher in (first, second)) / 2
    torch.testing.assert_close(gradient, mean, rtol=1e-10, atol=1e-10)
