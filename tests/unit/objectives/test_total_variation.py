"""Half the summed difference of probabilities: against numpy in double precision, its bound and its limit."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from scipy.special import softmax

from tests.unit.objectives.closed_forms import evaluated, section
from tests.unit.objectives.test_fused import Array, cases, temperatures, unhurried
from tests.unit.objectives.test_position_laws import Case, finite
from understudy.data.loader import IGNORED


def variation(student: Array, teacher: Array, labels: Array, temperature: float) -> float:
    differences = np.abs(softmax(student / temperature, -1) - softmax(teacher / temperature, -1))
    return float(temperature * 0.5 * differences.sum(-1)[labels != IGNORED].sum())


@unhurried
@given(cases(), temperatures)
def test_the_loss_is_that_of_its_formula(case: Case, temperature: float) -> None:
    student, teacher, labels = case
    loss, _ = evaluated(section("total_variation", temperature=temperature), student, teacher, labels)
    expected = variation(student.numpy(), teacher.numpy(), labels.numpy(), temperature)
    assert loss == pytest.approx(expected, rel=1e-10, abs=1e-10)
    exchanged, _ = evaluated(section("total_variation", temperature=temperature), teacher, student, labels)
    assert loss == pytest.approx(exchanged, rel=1e-12, abs=1e-12)


def test_of_distributions_without_a_common_class_it_is_the_temperature() -> None:
    student, teacher = torch.tensor([[3.0, -math.inf, -math.inf]]), torch.tensor([[-math.inf, 3.0, 1.0]])
    loss, _ = evaluated(section("total_variation", temperature=3.0), student, teacher, torch.tensor([0]))
    assert loss == pytest.approx(3)


@unhurried
@given(cases())
def test_at_a_high_temperature_it_compares_centred_logits(case: Case) -> None:
    """Half the mean absolute difference; the gradient has the signs alone."""
    student, teacher, labels = finite(case)
    loss, gradient = evaluated(section("total_variation", temperature=1e6), student, teacher, labels.clamp(min=0))
    differences = student - teacher
    differences = differences - differences.mean(-1, keepdim=True)
    assert loss == pytest.approx(differences.abs().mean(-1).sum().item() / 2, rel=1e-3, abs=1e-3)
    if differences.abs().min() > 1e-3:
        signs = differences.sign() - differences.sign().mean(-1, keepdim=True)
        torch.testing.assert_close(gradient, signs / (2 * student.shape[1]), rtol=1e-3, atol=1e-4)
