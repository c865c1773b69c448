"""The generalized Jensen-Shannon divergence: against numpy in double precision, and its ends."""

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

betas = st.sampled_from([0.05, 0.3, 0.5, 0.9])


def generalized(student: Array, teacher: Array, labels: Array, beta: float, temperature: float) -> float:
    p, q = softmax(teacher / temperature, -1), softmax(student / temperature, -1)
    middle = beta * p + (1 - beta) * q
    divergences = beta * rel_entr(p, middle).sum(-1) + (1 - beta) * rel_entr(q, middle).sum(-1)
    return float(temperature**2 * divergences[labels != IGNORED].sum())


@unhurried
@given(cases(), betas, temperatures)
def test_the_loss_is_that_of_its_formula(case: Case, beta: float, temperature: float) -> None:
    student, teacher, labels = case
    loss, _ = evaluated(section("jsd", beta=beta, temperature=temperature), student, teacher, labels)
    expected = generalized(student.numpy(), teacher.numpy(), labels.numpy(), beta, temperature)
    assert loss == pytest.approx(expected, rel=1e-10, abs=1e-10)


@pytest.mark.parametrize(("beta", "end"), [(0, "logits"), (1, "reverse_kl")])
@unhurried
@given(case=cases(), temperature=temperatures)
def test_its_ends_are_the_two_divergences_to_the_bit(beta: float, end: str, case: Case, temperature: float) -> None:
    student, teacher, labels = finite(case)
    loss, gradient = evaluated(section("jsd", beta=beta, temperature=temperature), student, teacher, labels)
    expected, of_logits = evaluated(section(end, temperature=temperature), student, teacher, labels)
    assert loss == expected
    assert gradient.equal(of_logits)


@pytest.mark.parametrize(("beta", "share", "end"), [(1e-7, 1e-7, "logits"), (1 - 1e-7, 1e-7, "reverse_kl")])
@unhurried
@given(case=cases())
def test_near_its_ends_it_is_a_share_of_them(beta: float, share: float, end: str, case: Case) -> None:
    """It vanishes there: its ends are limits after division by beta or 1 - beta."""
    student, teacher, labels = (tensor[:1] for tensor in finite(case))
    student, teacher = student.clamp(-2, 2), teacher.clamp(-2, 2)
    loss, _ = evaluated(section("jsd", beta=beta), student, teacher, labels)
    expected, _ = evaluated(section(end), student, teacher, labels)
    assert loss / share == pytest.approx(expected, rel=1e-3, abs=1e-6)


@unhurried
@given(cases(), betas)
def test_exchanged_models_have_the_loss_of_1_less_beta(case: Case, beta: float) -> None:
    student, teacher, labels = case
    loss, _ = evaluated(section("jsd", beta=beta), student, teacher, labels)
    exchanged, _ = evaluated(section("jsd", beta=1 - beta), teacher, student, labels)
    assert loss == pytest.approx(exchanged, rel=1e-10, abs=1e-10)


def test_of_distributions_without_a_common_class_it_is_log_2() -> None:
    student, teacher = torch.tensor([[3.0, -math.inf]]), torch.tensor([[-math.inf, 3.0]])
    loss, gradient = evaluated(section("jsd", temperature=1.0), student, teacher, torch.tensor([0]))
    assert loss == pytest.approx(math.log(2))
    assert not gradient.any()


@pytest.mark.parametrize("beta", [-0.1, 1.1])
def test_a_beta_outside_0_to_1_is_refused(beta: float) -> None:
    with pytest.raises(InputError, match=r"student\.distill\[0\]\.beta: .*[01]"):
        from_values(values("causal-lm", distill=[{"type": "jsd", "beta": beta}]), (), "here")
