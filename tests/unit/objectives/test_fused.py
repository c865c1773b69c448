"""Loss and gradient in one pass: against formulas in numpy, for any weights, temperatures and logits."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax, softmax
from torch import Tensor

from understudy.data.loader import IGNORED
from understudy.models.outputs import Outputs, OutputShapes
from understudy.objectives import fused
from understudy.objectives.batch import Batch, Mixed
from understudy.objectives.fused import compiled, full_precision, write_gradient
from understudy.objectives.labels import LabelsObjective
from understudy.objectives.logits import LogitsObjective
from understudy.objectives.objective import Context, PositionObjective, objective
from understudy.recipe import Train

unhurried = settings(deadline=None)
Array = Any


def criterion(hard: float, soft: float, temperature: float, smoothing: float) -> PositionObjective:
    sections = (
        LabelsObjective(type="labels", weight=hard),
        LogitsObjective(type="logits", weight=soft, temperature=temperature),
    )
    loss = objective(sections, Context(Train(steps=1, label_smoothing=smoothing), seed=0))
    assert isinstance(loss, PositionObjective)
    return loss


def reference(
    student: Array, teacher: Array, labels: Array, weights: tuple[float, float], temperature: float, smoothing: float
) -> tuple[float, Array]:
    """Row by row and term by term, in numpy."""
    total, gradient = 0.0, np.zeros_like(student)
    hard, soft = weights
    for row, label in enumerate(labels):
        if label == IGNORED:
            continue
        classes = student.shape[1]
        target = np.full(classes, smoothing / classes)
        target[label] += 1 - smoothing
        log_q, terms = log_softmax(student[row]), target > 0
        total -= hard * (target[terms] * log_q[terms]).sum()
        gradient[row] += hard * (softmax(student[row]) - target)
        p, q = softmax(teacher[row] / temperature), softmax(student[row] / temperature)
        support = p > 0
        with np.errstate(divide="ignore"):
            total += soft * temperature**2 * (p[support] * (np.log(p[support]) - np.log(q[support]))).sum()
        gradient[row] += soft * temperature * (q - p)
    return float(total), gradient


@st.composite
def cases(draw: st.DrawFn) -> tuple[Tensor, Tensor, Tensor]:
    """Logits (n, K) of student and teacher in fp64, some of the teacher's minus infinity; and labels."""
    random = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    rows, classes = draw(st.integers(1, 9)), draw(st.integers(2, 11))
    size = draw(st.sampled_from([0.1, 1.0, 8.0]))
    student, teacher = (size * torch.randn(rows, classes, generator=random, dtype=torch.double) for _ in "ab")
    forbidden = torch.rand(rows, classes, generator=random) < draw(st.sampled_from([0.0, 0.3]))
    forbidden[:, 0] = False
    teacher[forbidden] = -math.inf
    if draw(st.booleans()):  # and the student's with them
        student[forbidden] = -math.inf
    labels = torch.randint(0, classes, (rows,), generator=random)
    labels[forbidden.gather(1, labels[:, None])[:, 0]] = 0
    labels[torch.rand(rows, generator=random) < draw(st.sampled_from([0.0, 0.5, 1.0]))] = IGNORED
    return student, teacher, labels


temperatures = st.sampled_from([0.5, 1.0, 2.0, 4.0])
weights = st.tuples(st.sampled_from([0.0, 0.3, 1.0]), st.sampled_from([0.0, 0.7, 2.0]))


@unhurried
@given(cases(), weights, temperatures, st.integers(1, 40))
def test_loss_and_gradient_are_those_of_the_formula(
    case: tuple[Tensor, Tensor, Tensor], weight: tuple[float, float], temperature: float, at_a_time: int
) -> None:
    """To 1e-10, however many rows are done at a time, with logits of minus infinity and positions that do not count."""
    student, teacher, labels = case
    gradient = torch.empty_like(student)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(fused.AT_A_TIME, "cpu", at_a_time)
        losses = criterion(*weight, temperature, 0.0).losses
        total = write_gradient(losses, student, (teacher,), Batch(labels, labels), gradient)
    expected, of_logits = reference(student.numpy(), teacher.numpy(), labels.numpy(), weight, temperature, 0.0)
    assert total.item() == pytest.approx(expected, rel=1e-10, abs=1e-10)
    np.testing.assert_allclose(gradient.numpy(), of_logits, rtol=0, atol=1e-10)


@unhurried
@given(cases(), temperatures, st.sampled_from([0.1, 0.9]))
def test_smoothed_labels_have_the_gradient_of_their_formula(
    case: tuple[Tensor, Tensor, Tensor], temperature: float, smoothing: float
) -> None:
    student, teacher, labels = case
    student, gradient = student.clamp(min=-30), torch.empty_like(student)
    losses = criterion(0.4, 0.6, temperature, smoothing).losses
    total = write_gradient(losses, student, (teacher,), Batch(labels, labels), gradient)
    expected, of_logits = reference(
        student.numpy(), teacher.numpy(), labels.numpy(), (0.4, 0.6), temperature, smoothing
    )
    assert total.item() == pytest.approx(expected, rel=1e-10, abs=1e-10)
    np.testing.assert_allclose(gradient.numpy(), of_logits, rtol=0, atol=1e-10)


@unhurried
@given(cases(), cases(), temperatures)
def test_several_teachers_are_the_mean_of_their_softened_distributions(
    case: tuple[Tensor, Tensor, Tensor], other_case: tuple[Tensor, Tensor, Tensor], temperature: float
) -> None:
    """Against numpy's mean of probabilities; a teacher that is not named has no say."""
    student, teacher, labels = case
    student = student.clamp(min=-30)
    second = other_case[1].repeat(9, 6)[: len(student), : student.shape[1]]
    section = LogitsObjective(type="logits", temperature=temperature, teacher=("first", "second"))
    names = dict.fromkeys(("first", "odd", "second"), OutputShapes())
    built = objective((section,), Context(Train(steps=1), seed=0, teachers=names))
    assert isinstance(built, PositionObjective)
    gradient, odd = torch.empty_like(student), torch.full_like(student, math.nan)
    total = write_gradient(built.losses, student, (teacher, odd, second), Batch(labels, labels), gradient)
    mean = (softmax(teacher.numpy() / temperature, axis=-1) + softmax(second.numpy() / temperature, axis=-1)) / 2
    with np.errstate(divide="ignore"):
        logits = temperature * np.log(mean)
    expected, of_logits = reference(student.numpy(), logits, labels.numpy(), (0.0, 1.0), temperature, 0.0)
    assert total.item() == pytest.approx(expected, rel=1e-9, abs=1e-9)
    np.testing.assert_allclose(gradient.numpy(), of_logits, rtol=0, atol=1e-9)


def test_an_objective_of_one_teacher_learns_from_that_one_alone() -> None:
    random = torch.Generator().manual_seed(0)
    student, first, second = (torch.randn(5, 7, generator=random, dtype=torch.double) for _ in "abc")
    labels = torch.zeros(5, dtype=torch.long)
    names = {"first": OutputShapes(), "second": OutputShapes()}
    built = objective((LogitsObjective(type="logits", teacher="second"),), Context(Train(steps=1), 0, teachers=names))
    alone = objective((LogitsObjective(type="logits"),), Context(Train(steps=1), 0))
    loss = built(Outputs(student), (Outputs(first), Outputs(second)), Batch(labels, labels))
    assert loss == alone(Outputs(student), (Outputs(second),), Batch(labels, labels))


@pytest.mark.parametrize("mixed", [True, False])
@pytest.mark.parametrize("temperature", [0.7, 3.0])
def test_the_closed_gradient_passes_gradcheck(mixed: bool, temperature: float) -> None:
    random = torch.Generator().manual_seed(0)
    student, teacher = (torch.randn(5, 7, generator=random, dtype=torch.double) for _ in "ab")
    labels = torch.tensor([0, 3, IGNORED, 6, 2])
    batch = Batch(labels, labels, Mixed(labels.flip(0), 0.3) if mixed else None)
    smoothed = criterion(0.3, 0.7, temperature, 0.1)
    assert torch.autograd.gradcheck(
        lambda logits: smoothed(Outputs(logits), (Outputs(teacher),), batch), student.requires_grad_()
    )


def test_a_zero_probability_where_the_teachers_is_positive_is_an_infinite_loss() -> None:
    student, teacher = torch.tensor([[1.0, 2.0, -math.inf]]), torch.tensor([[1.0, 2.0, 0.0]])
    labels = torch.tensor([1])
    total = write_gradient(
        criterion(0.0, 1.0, 2.0, 0.0).losses, student, (teacher,), Batch(labels, labels), torch.empty_like(student)
    )
    assert total.item() == math.inf


def test_a_position_that_does_not_count_may_hold_anything() -> None:
    student, labels = torch.full((2, 3), math.nan), torch.tensor([IGNORED, IGNORED])
    gradient = torch.empty_like(student)
    total = write_gradient(criterion(0.5, 0.5, 2.0, 0.1).losses, student, (student,), Batch(labels, labels), gradient)
    assert total.item() == 0
    assert not gradient.any()


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_compiled_losses_are_the_same_and_may_overwrite_the_logits(kind: torch.dtype) -> None:
    """Traced whole, as for a GPU; the kernels are torch's."""
    random = torch.Generator().manual_seed(0)
    losses = criterion(0.3, 0.7, 2.0, 0.1).losses
    for rows in (6, 9, 1):
        student, teacher = (torch.randn(rows, 50, generator=random).to(kind) for _ in "ab")
        labels = torch.randint(0, 50, (rows,), generator=random)
        labels[:1] = IGNORED
        gradient, batch = torch.empty_like(student), Batch(labels, labels)
        total = write_gradient(losses, student, (teacher,), batch, gradient)
        again = compiled(losses, "aot_eager")(student, (teacher,), batch, student, 1.0)
        assert full_precision(kind) is total.dtype is again.dtype
        torch.testing.assert_close(again, total)
        torch.testing.assert_close(student, gradient)
