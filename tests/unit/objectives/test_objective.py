"""Objectives against numpy and scipy in double precision."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax, rel_entr
from torch import Tensor
from torch.nn.functional import cross_entropy as torch_cross_entropy
from torch.nn.functional import one_hot

from understudy.data.loader import IGNORED
from understudy.models.outputs import Outputs
from understudy.objectives.batch import Batch, Mixed
from understudy.objectives.labels import LabelsObjective, cross_entropy
from understudy.objectives.logits import LogitsObjective
from understudy.objectives.objective import Context, Objective, objective
from understudy.recipe import Train
from understudy.recipe.objectives import without_teacher

unhurried = settings(deadline=None)
Case = tuple[Tensor, Tensor, Tensor]


def hard(logits: Tensor, labels: Tensor) -> float:
    rows, targets = logits.double().numpy().reshape(-1, logits.shape[-1]), labels.numpy().ravel()
    chosen = log_softmax(rows, axis=-1)[np.arange(len(rows)), np.where(targets == IGNORED, 0, targets)]
    return float(-chosen[targets != IGNORED].sum())


def soft(student: Tensor, teacher: Tensor, labels: Tensor, temperature: float) -> float:
    def log_probabilities(logits: Tensor) -> Any:
        return log_softmax(logits.double().numpy().reshape(-1, logits.shape[-1]) / temperature, axis=-1)

    divergence = rel_entr(np.exp(log_probabilities(teacher)), np.exp(log_probabilities(student))).sum(-1)
    return float(temperature**2 * divergence[labels.numpy().ravel() != IGNORED].sum())


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Logits of student and teacher and labels of images (N,) or of text (N, L), some without a target."""
    random = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    shape = draw(st.sampled_from([(1,), (5,), (1, 1), (3, 4)]))
    classes = draw(st.integers(2, 7))
    student, teacher = (
        draw(st.sampled_from([0.1, 1, 5])) * torch.randn(*shape, classes, generator=random) for _ in "ab"
    )
    labels = torch.randint(0, classes, shape, generator=random)
    labels[torch.rand(shape, generator=random) < draw(st.sampled_from([0, 0.4, 1]))] = IGNORED
    return student, teacher, labels


def distillation(temperature: float, alpha: float) -> Objective:
    hard = LabelsObjective(type="labels", weight=1 - alpha)
    soft = LogitsObjective(type="logits", weight=alpha, temperature=temperature)
    return objective([hard, soft], Context(Train(steps=1), seed=0))


def loss_of(criterion: Objective, student: Tensor, teacher: Tensor, labels: Tensor) -> Tensor:
    loss: Tensor = criterion(Outputs(student), (Outputs(teacher),), Batch(labels, labels))
    return loss


@unhurried
@given(cases())
def test_cross_entropy_is_the_sum_over_targets(case: Case) -> None:
    logits, _, labels = case
    assert cross_entropy(logits, labels).item() == pytest.approx(hard(logits, labels), rel=1e-4, abs=1e-5)


@unhurried
@given(cases(), st.sampled_from([0.5, 1.0, 2.0, 4.0, 10.0]))
def test_the_soft_part_is_the_divergence_of_the_softened_distributions(case: Case, temperature: float) -> None:
    student, teacher, labels = case
    loss = loss_of(distillation(temperature, 1.0), student, teacher, labels).item()
    assert loss == pytest.approx(soft(student, teacher, labels, temperature), rel=1e-3, abs=1e-4)


@unhurried
@given(st.integers(0, 10_000), st.integers(2, 7), st.floats(0, 1), st.sampled_from([0.0, 0.1]))
def test_of_mixed_examples_it_is_that_of_the_mixed_labels(seed: int, classes: int, share: float, smooth: float) -> None:
    """torch's own, of labels that are distributions."""
    random = torch.Generator().manual_seed(seed)
    logits, labels = torch.randn(6, classes, generator=random), torch.randint(0, classes, (2, 6), generator=random)
    criterion = objective(without_teacher(), Context(Train(steps=1, label_smoothing=smooth), seed=0))
    loss = criterion(Outputs(logits), (), Batch(labels[0], labels[0], Mixed(labels[1], share)))
    first, second = one_hot(labels, classes).double()
    expected = torch_cross_entropy(
        logits.double(), share * first + (1 - share) * second, reduction="sum", label_smoothing=smooth
    )
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5, abs=1e-5)


@unhurried
@given(cases(), st.sampled_from([1.0, 3.0]), st.sampled_from([0.0, 0.3, 1.0]))
def test_the_loss_weighs_the_hard_and_the_soft_part(case: Case, temperature: float, alpha: float) -> None:
    student, teacher, labels = case
    expected = (1 - alpha) * hard(student, labels) + alpha * soft(student, teacher, labels, temperature)
    loss = loss_of(distillation(temperature, alpha), student, teacher, labels).item()
    assert loss == pytest.approx(expected, rel=1e-3, abs=1e-4)


@unhurried
@given(cases(), st.sampled_from([0.0, 0.1, 0.5]))
def test_smoothed_labels_spread_their_share_evenly(case: Case, smoothing: float) -> None:
    logits, _, labels = case
    classes = logits.shape[-1]
    criterion = objective(without_teacher(), Context(Train(steps=1, label_smoothing=smoothing), seed=0))
    log = torch.log_softmax(logits.double().flatten(0, -2), -1)
    chosen = labels.flatten() != IGNORED
    target = torch.full_like(log, smoothing / classes)
    places = labels.flatten().clamp(min=0)[:, None]
    target.scatter_add_(1, places, torch.full_like(places, 1 - smoothing, dtype=torch.double))
    expected = -(target * log).sum(-1)[chosen].sum().item()
    loss = loss_of(criterion, logits, logits, labels).item()
    assert loss == pytest.approx(expected, rel=1e-4, abs=1e-5)


@unhurried
@given(cases())
def test_without_the_soft_part_it_is_cross_entropy_and_its_gradient(case: Case) -> None:
    student, teacher, labels = case
    gradients = []
    for criterion in (distillation(4.0, 0.0), objective(without_teacher(), Context(Train(steps=1), seed=0))):
        logits = student.clone().requires_grad_()
        loss_of(criterion, logits, teacher, labels).backward()
        gradients.append(logits.grad)
    torch.testing.assert_close(*gradients)


@unhurried
@given(cases(), st.sampled_from([1.0, 2.0, 8.0]))
def test_a_student_that_equals_its_teacher_loses_nothing_to_it(case: Case, temperature: float) -> None:
    _, teacher, labels = case
    logits = teacher.clone().requires_grad_()
    loss = loss_of(distillation(temperature, 1.0), logits, teacher, labels)
    loss.backward()
    assert loss.item() == pytest.approx(0, abs=1e-5)
    torch.testing.assert_close(logits.grad, torch.zeros_like(logits), atol=1e-5, rtol=0)


@unhurried
@given(cases())
def test_positions_without_a_target_pull_at_nothing(case: Case) -> None:
    student, teacher, labels = case
    logits = student.clone().requires_grad_()
    loss_of(distillation(2.0, 0.5), logits, teacher, labels).backward()
    assert logits.grad is not None
    assert (logits.grad[labels == IGNORED] == 0).all()


@unhurried
@given(cases())
def test_the_parts_of_a_batch_add_up_to_its_loss(case: Case) -> None:
    student, teacher, labels = case
    criterion = distillation(2.0, 0.5)
    parts = [slice(at, at + 1) for at in range(len(labels))]
    split = sum(loss_of(criterion, student[part], teacher[part], labels[part]).item() for part in parts)
    assert split == pytest.approx(loss_of(criterion, student, teacher, labels).item(), abs=1e-3)


def soft_gradient(temperature: float) -> Tensor:
    random = torch.Generator().manual_seed(0)
    student, teacher = torch.randn(8, 5, generator=random).requires_grad_(), torch.randn(8, 5, generator=random)
    loss_of(distillation(temperature, 1.0), student, teacher, torch.zeros(8, dtype=torch.long)).backward()
    assert student.grad is not None
    return student.grad


def test_the_factor_keeps_the_gradient_from_shrinking_with_the_temperature() -> None:
    """Hinton et al. 2015, section 2.1: at a high temperature it matches logits: (z - v) / K, both centred."""
    random = torch.Generator().manual_seed(0)
    student, teacher = torch.randn(8, 5, generator=random), torch.randn(8, 5, generator=random)
    matching = (student - student.mean(-1, keepdim=True) - teacher + teacher.mean(-1, keepdim=True)) / 5
    torch.testing.assert_close(soft_gradient(100.0), matching, rtol=0.03, atol=0.005)
    ratio = soft_gradient(40.0).norm() / soft_gradient(20.0).norm()
    assert ratio == pytest.approx(1, abs=0.02)


def test_logits_of_half_precision_are_compared_in_full() -> None:
    random = torch.Generator().manual_seed(0)
    student, teacher = (torch.randn(64, 50, generator=random).bfloat16() for _ in "ab")
    labels = torch.randint(0, 50, (64,), generator=random)
    loss = loss_of(distillation(2.0, 0.5), student, teacher, labels)
    assert loss.dtype is torch.float32
    expected = 0.5 * hard(student.float(), labels) + 0.5 * soft(student.float(), teacher.float(), labels, 2.0)
    assert loss.item() == pytest.approx(expected, rel=1e-4)
