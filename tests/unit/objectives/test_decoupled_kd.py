"""Decoupled knowledge distillation: against numpy in double precision, and the divergence that it splits."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import rel_entr, softmax

from tests.unit.objectives.closed_forms import evaluated, losses, section
from tests.unit.objectives.test_fused import Array, cases, temperatures, unhurried
from tests.unit.objectives.test_position_laws import Case, finite
from tests.unit.recipe.test_objectives import values
from understudy.data.loader import IGNORED
from understudy.errors import InputError
from understudy.objectives.batch import Batch
from understudy.objectives.fused import write_gradient
from understudy.recipe.file import from_values

weights = st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([0.5, 1.0, 8.0]))


def decoupled(student: Array, teacher: Array, labels: Array, weights: tuple[float, float], temperature: float) -> float:
    """Row by row; the other classes without the target are a distribution of their own."""
    total = 0.0
    for ours, theirs, label in zip(student, teacher, labels, strict=True):
        if label == IGNORED:
            continue
        p, q = softmax(theirs / temperature), softmax(ours / temperature)
        target = rel_entr([p[label], np.delete(p, label).sum()], [q[label], np.delete(q, label).sum()]).sum()
        rest = [np.delete(logits / temperature, label) for logits in (theirs, ours)]
        others = rel_entr(*map(softmax, rest)).sum() if rest[0].max() > -math.inf else 0.0
        total += temperature**2 * (weights[0] * target + weights[1] * others)
    return total


@unhurried
@given(cases(), weights, temperatures)
def test_the_loss_is_that_of_its_formula(case: Case, weight: tuple[float, float], temperature: float) -> None:
    student, teacher, labels = case
    keys = {"target_weight": weight[0], "non_target_weight": weight[1], "temperature": temperature}
    loss, _ = evaluated(section("decoupled_kd", **keys), student, teacher, labels)
    expected = decoupled(student.numpy(), teacher.numpy(), labels.numpy(), weight, temperature)
    assert loss == pytest.approx(expected, rel=1e-9, abs=1e-9)


@unhurried
@given(cases(), temperatures)
def test_with_the_teachers_doubt_for_a_weight_it_is_the_kl_divergence(case: Case, temperature: float) -> None:
    """KL = TCKD + (1 - the teacher's probability of the label) * NCKD (Zhao et al. 2022, equation 5)."""
    student, teacher, labels = finite(case)
    for row in range(len(student)):
        rows = slice(row, row + 1)
        label = int(labels[row].clamp(min=0))
        doubt = 1 - (teacher[row] / temperature).softmax(-1)[label].item()
        chosen = section("decoupled_kd", target_weight=1.0, non_target_weight=doubt, temperature=temperature)
        loss, gradient = evaluated(chosen, student[rows], teacher[rows], labels[rows])
        kl = section("logits", temperature=temperature)
        expected, of_logits = evaluated(kl, student[rows], teacher[rows], labels[rows])
        assert loss == pytest.approx(expected, rel=1e-9, abs=1e-9)
        torch.testing.assert_close(gradient, of_logits, rtol=1e-9, atol=1e-9)


def test_each_weight_has_a_part_of_its_own() -> None:
    """The target's logit alone changes no loss of the others, and the others' relations none of the target."""
    random = torch.Generator().manual_seed(0)
    student, teacher = (torch.randn(1, 5, generator=random, dtype=torch.double) for _ in "ab")
    labels, moved = torch.tensor([2]), student + torch.tensor([0, 0, 3.0, 0, 0])
    exchanged = student[:, [4, 3, 2, 1, 0]]
    of_others = section("decoupled_kd", target_weight=0.0)
    of_target = section("decoupled_kd", non_target_weight=0.0)
    loss = {chosen: evaluated(chosen, student, teacher, labels)[0] for chosen in (of_others, of_target)}
    assert evaluated(of_others, moved, teacher, labels)[0] == pytest.approx(loss[of_others])
    assert evaluated(of_target, exchanged, teacher, labels)[0] == pytest.approx(loss[of_target])
    assert evaluated(of_target, moved, teacher, labels)[0] != pytest.approx(loss[of_target])
    assert not evaluated(of_others, student, teacher, labels)[1][0, 2].any()


def test_a_teacher_that_gives_the_other_classes_nothing_teaches_nothing_of_them() -> None:
    student, teacher = torch.tensor([[1.0, 2.0, 4.0]]), torch.tensor([[3.0, -math.inf, -math.inf]])
    loss, gradient = evaluated(section("decoupled_kd", target_weight=0.0), student, teacher, torch.tensor([0]))
    assert (loss, gradient.any()) == (0, False)


def test_labels_are_not_smoothed() -> None:
    random = torch.Generator().manual_seed(0)
    student, teacher = (torch.randn(3, 5, generator=random) for _ in "ab")
    labels, gradients = torch.tensor([0, 3, 1]), torch.empty(2, 3, 5)
    for gradient, smoothing in zip(gradients, (0.0, 0.5), strict=True):
        smoothed = losses(section("decoupled_kd"), smoothing=smoothing)
        write_gradient(smoothed, student, (teacher,), Batch(labels, labels), gradient)
    assert gradients[0].equal(gradients[1])


def images(augment: dict[str, object]) -> dict[str, object]:
    train = {"steps": 1, "augment": augment}
    recipe = values("image-classification", distill=[{"type": "labels"}, {"type": "decoupled_kd"}], train=train)
    return {**recipe, "data": {"source": {"type": "digits"}, "image": {"size": 8, "channels": 1}}}


def test_mixed_images_are_refused() -> None:
    from_values(images({"flip": True}), (), "here")
    with pytest.raises(
        InputError, match=r"student\.distill\[1\]: .*a mixed image has two labels; leave augment\.mixup"
    ):
        from_values(images({"mixup": 0.2}), (), "here")


def test_two_weights_of_0_are_refused() -> None:
    distill = [{"type": "decoupled_kd", "target_weight": 0, "non_target_weight": 0}]
    with pytest.raises(InputError, match=r"student\.distill\[0\]: target_weight and non_target_weight are both 0"):
        from_values(values("causal-lm", distill=distill), (), "here")
