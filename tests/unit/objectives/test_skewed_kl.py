"""The skew KL divergence in both directions: against numpy in double precision, its limits and its bound."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import rel_entr, softmax

from tests.unit.objectives.closed_forms import evaluated, section
from tests.unit.objectives.test_fused import Array, cases, temperatures, unhurried
from tests.unit.objectives.test_position_laws import Case, finite
from tests.unit.recipe.test_objectives import values
from understudy.data.loader import IGNORED
from understudy.errors import InputError
from understudy.recipe.file import from_values

skews = st.sampled_from([0.01, 0.1, 0.5, 0.9])


def skewed(first: Array, second: Array, labels: Array, alpha: float, temperature: float) -> float:
    p, q = softmax(first / temperature, -1), softmax(second / temperature, -1)
    divergences = rel_entr(p, alpha * p + (1 - alpha) * q).sum(-1)
    return float(temperature**2 * divergences[labels != IGNORED].sum())


@pytest.mark.parametrize("reverse", [False, True])
@unhurried
@given(case=cases(), alpha=skews, temperature=temperatures)
def test_the_loss_is_that_of_its_formula(reverse: bool, case: Case, alpha: float, temperature: float) -> None:
    student, teacher, labels = case
    chosen = section("skewed_kl", alpha=alpha, reverse=reverse, temperature=temperature)
    loss, _ = evaluated(chosen, student, teacher, labels)
    first, second = (student, teacher) if reverse else (teacher, student)
    expected = skewed(first.numpy(), second.numpy(), labels.numpy(), alpha, temperature)
    assert loss == pytest.approx(expected, rel=1e-10, abs=1e-10)
    assert loss <= -(temperature**2) * math.log(alpha) * (labels != IGNORED).sum().item() + 1e-10


@pytest.mark.parametrize(("reverse", "limit"), [(False, "logits"), (True, "reverse_kl")])
@unhurried
@given(case=cases())
def test_without_skew_it_approaches_the_kl_divergence(reverse: bool, limit: str, case: Case) -> None:
    student, teacher, labels = (tensor for tensor in finite(case))
    student, teacher = student.clamp(-3, 3), teacher.clamp(-3, 3)
    loss, gradient = evaluated(section("skewed_kl", alpha=1e-9, reverse=reverse), student, teacher, labels)
    expected, of_logits = evaluated(section(limit), student, teacher, labels)
    assert loss == pytest.approx(expected, rel=1e-5, abs=1e-7)
    torch.testing.assert_close(gradient, of_logits, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("reverse", [False, True])
@unhurried
@given(case=cases())
def test_with_full_skew_it_vanishes(reverse: bool, case: Case) -> None:
    student, teacher, labels = finite(case)
    loss, gradient = evaluated(section("skewed_kl", alpha=1 - 1e-12, reverse=reverse), student, teacher, labels)
    assert loss == pytest.approx(0, abs=1e-9)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), rtol=0, atol=1e-9)


@pytest.mark.parametrize("alpha", [0, 1])
def test_a_skew_of_0_or_1_is_refused(alpha: float) -> None:
    with pytest.raises(InputError, match=r"student\.distill\[0\]\.alpha: .*[01]"):
        from_values(values("causal-lm", distill=[{"type": "skewed_kl", "alpha": alpha}]), (), "here")
