"""The student's divergence from its teacher: against numpy in double precision, and beside `logits`."""

import numpy as np
import pytest
import torch
from hypothesis import given
from scipy.special import rel_entr, softmax

from tests.unit.objectives.closed_forms import evaluated, section
from tests.unit.objectives.test_fused import Array, cases, temperatures, unhurried
from tests.unit.objectives.test_position_laws import Case, finite
from understudy.data.loader import IGNORED


def reverse(student: Array, teacher: Array, labels: Array, temperature: float) -> float:
    divergences = rel_entr(softmax(student / temperature, -1), softmax(teacher / temperature, -1)).sum(-1)
    return float(temperature**2 * divergences[labels != IGNORED].sum())


@unhurried
@given(cases(), temperatures)
def test_the_loss_is_that_of_its_formula(case: Case, temperature: float) -> None:
    """Infinite where the teacher alone has a probability of 0."""
    student, teacher, labels = case
    loss, _ = evaluated(section("reverse_kl", temperature=temperature), student, teacher, labels)
    expected = reverse(student.numpy(), teacher.numpy(), labels.numpy(), temperature)
    assert loss == pytest.approx(expected, rel=1e-10, abs=1e-10)


@unhurried
@given(cases(), temperatures)
def test_with_student_and_teacher_exchanged_it_is_the_loss_of_logits(case: Case, temperature: float) -> None:
    student, teacher, labels = finite(case)
    loss, _ = evaluated(section("reverse_kl", temperature=temperature), student, teacher, labels)
    forward, _ = evaluated(section("logits", temperature=temperature), teacher, student, labels)
    assert loss == pytest.approx(forward, rel=1e-12, abs=1e-12)


def test_it_prefers_one_mode_of_the_teacher_to_the_middle_of_both() -> None:
    """And `logits` prefers the middle (Gu et al. 2024, figure 2)."""
    teacher, labels = torch.tensor([[5.0, 0.0, 5.0]]).double(), torch.zeros(1, dtype=torch.long)
    mode, middle = torch.tensor([[5.0, 0.0, 0.0]]).double(), torch.tensor([[1.0, 1.0, 1.0]]).double()
    for kind, prefers_mode in (("reverse_kl", True), ("logits", False)):
        chosen = section(kind, temperature=1.0)
        of_mode, of_middle = (evaluated(chosen, student, teacher, labels)[0] for student in (mode, middle))
        assert (of_mode < of_middle) is prefers_mode
    assert np.isfinite(of_mode)
