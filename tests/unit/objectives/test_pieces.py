"""The loss in pieces is the loss of all positions, with its gradients, and takes an eighth of its memory."""

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from understudy.data.loader import IGNORED
from understudy.models import outputs
from understudy.models.outputs import Outputs, States
from understudy.objectives.batch import Batch, Mixed
from understudy.objectives.labels import LabelsObjective
from understudy.objectives.logits import LogitsObjective
from understudy.objectives.objective import Context, Objective, objective, weighted
from understudy.objectives.pieces import loss_in_pieces
from understudy.plan.ledger import Ledger
from understudy.plan.pieces import few_pieces
from understudy.recipe import Train

BOTH = (LabelsObjective(type="labels", weight=0.3), LogitsObjective(type="logits", weight=0.7, temperature=2.0))
TRAIN = Context(Train(steps=1, label_smoothing=0.1), seed=0)


def states(head: nn.Linear, features: Tensor, *, linear: bool = True) -> States:
    return States(features, head, (*head.parameters(),), head.out_features, head if linear else None)


def case(positions: int, vocabulary: int, width: int) -> tuple[nn.Linear, Tensor, States, Batch]:
    torch.manual_seed(0)
    head, teacher_head = (
        nn.Linear(width, vocabulary),
        nn.Linear(2 * width, vocabulary).requires_grad_(requires_grad=False),
    )
    features = torch.randn(2, positions // 2, width, requires_grad=True)
    labels = torch.randint(vocabulary, (2, positions // 2))
    labels[0, :3] = IGNORED
    return (
        head,
        features,
        states(teacher_head, torch.randn(2, positions // 2, 2 * width)),
        Batch(labels.clone(), labels),
    )


@pytest.fixture
def few_held(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Seven positions at a time, of a vocabulary of 50."""
    monkeypatch.setattr(outputs, "LOGITS_AT_A_TIME", 7 * 50)
    return


@pytest.mark.usefixtures("few_held")
@pytest.mark.parametrize("mixed", [True, False])
@pytest.mark.parametrize("with_teacher", [True, False])
@pytest.mark.parametrize("linear", [True, False])
def test_loss_and_gradients_are_those_of_all_positions(linear: bool, with_teacher: bool, mixed: bool) -> None:
    head, features, teacher, batch = case(40, 50, 8)
    batch = batch._replace(mixed=Mixed(batch.labels.flip(0), 0.3) if mixed else None)
    criterion = objective(BOTH if with_teacher else BOTH[:1], TRAIN)
    loss = criterion(Outputs(head(features)), (Outputs(teacher.head(teacher.states)),), batch)
    expected = torch.autograd.grad(3 * loss, (features, *head.parameters()))
    in_pieces = loss_in_pieces(
        criterion, states(head, features, linear=linear), (teacher,) if with_teacher else (), batch
    )
    torch.testing.assert_close(in_pieces, loss, rtol=1e-6, atol=0)
    for ours, theirs in zip(torch.autograd.grad(3 * in_pieces, (features, *head.parameters())), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 60), st.integers(1, 2000), st.booleans(), st.booleans())
def test_the_size_of_pieces_changes_no_result(
    positions: int, logits_at_a_time: int, linear: bool, with_teacher: bool
) -> None:
    """In fp64, to rounding; and a piece's size is the same whatever memory is free."""
    head, features, teacher, batch = case(2 * positions, 50, 8)
    head, teacher_head, features = head.double(), teacher.head, features.detach().double().requires_grad_()
    assert isinstance(teacher_head, nn.Linear)
    taught = (states(teacher_head.double(), teacher.states.double()),) if with_teacher else ()
    criterion, results = objective(BOTH if with_teacher else BOTH[:1], TRAIN), []
    for at_a_time in (2**20, logits_at_a_time):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(outputs, "LOGITS_AT_A_TIME", at_a_time)
            loss = loss_in_pieces(criterion, states(head, features, linear=linear), taught, batch)
        results.append([loss, *torch.autograd.grad(loss, (features, *head.parameters()))])
    for small_result, large_result in zip(*results, strict=True):
        torch.testing.assert_close(small_result, large_result, rtol=1e-11, atol=1e-11)


class Squared(Objective):
    """One without a closed gradient."""

    by_position = True

    def forward(self, student: Outputs, teachers: tuple[Outputs, ...], batch: Batch) -> Tensor:
        return student.logits.square().sum()


@pytest.mark.usefixtures("few_held")
def test_an_objective_without_a_closed_gradient_gets_autograds() -> None:
    head, features, _, batch = case(40, 50, 8)
    criterion = weighted([(0.5, Squared()), (1.0, objective(BOTH[:1], TRAIN))])
    loss = criterion(Outputs(head(features)), (), batch)
    in_pieces = loss_in_pieces(criterion, states(head, features), (), batch)
    torch.testing.assert_close(in_pieces, loss, rtol=1e-5, atol=0)
    inputs = (features, *head.parameters())
    for ours, theirs in zip(torch.autograd.grad(in_pieces, inputs), torch.autograd.grad(loss, inputs), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("linear", [True, False])
def test_small_gradients_survive_fp16(linear: bool) -> None:
    """Of a large vocabulary, most gradients of logits are below what fp16 holds."""
    head, features, _, batch = case(4, 40_000, 8)
    expected = torch.autograd.grad(
        loss_in_pieces(objective(BOTH[:1], TRAIN), states(head, features), (), batch), head.weight
    )
    with torch.autocast("cpu", torch.float16):
        loss = loss_in_pieces(objective(BOTH[:1], TRAIN), states(head, features, linear=linear), (), batch)
    in_pieces = torch.autograd.grad(loss, head.weight)
    assert (in_pieces[0] == 0).float().mean() < 0.01
    torch.testing.assert_close(in_pieces[0], expected[0], rtol=0.02, atol=1e-6)


@pytest.mark.usefixtures("few_held")
def test_a_head_in_half_precision_gets_gradients_of_its_own_precision() -> None:
    head, features, teacher, batch = case(40, 50, 8)
    criterion = objective(BOTH, TRAIN)
    with torch.autocast("cpu", torch.bfloat16):
        in_pieces = loss_in_pieces(criterion, states(head, features), (teacher,), batch)
        loss = criterion(Outputs(head(features)), (Outputs(teacher.head(teacher.states)),), batch)
    torch.testing.assert_close(in_pieces, loss, rtol=1e-4, atol=0)
    head.bfloat16()
    loss_in_pieces(criterion, states(head, features.bfloat16()), (teacher,), batch).backward()
    assert head.weight.grad is not None
    assert head.weight.grad.dtype is torch.bfloat16


def peak(in_pieces: bool) -> int:
    """Of a distillation step's loss at a vocabulary of 128k and 8,192 tokens, on tensors without memory."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    ledger = Ledger(vocabulary=128_000, grain=1)
    with FakeTensorMode(), ledger.watching(), few_pieces(ledger):
        head, features, teacher, batch = case(8192, 128_000, 256)
        ledger.forget()
        before = ledger.peak().bytes
        if in_pieces:
            loss = loss_in_pieces(objective(BOTH, TRAIN), states(head, features), (teacher,), batch)
        else:
            loss = objective(BOTH, TRAIN)(Outputs(head(features)), (Outputs(teacher.head(teacher.states)),), batch)
        loss.backward()
    return ledger.peak().bytes - before


def test_it_takes_at_most_an_eighth_of_the_memory_at_a_vocabulary_of_128k() -> None:
    assert 8 * peak(in_pieces=True) <= peak(in_pieces=False)


def liger_loss(student: Tensor, teacher: Tensor) -> Tensor:
    """KL(teacher || student) where the student's logits are padded as by Liger Kernel 0.8.5.

    Its LigerFusedLinearDistillationBase._compute_loss appends zeros to the student's logits, up to the teacher's rows.
    """
    padding = torch.zeros(len(student), teacher.shape[-1] - student.shape[-1])
    log_student = torch.cat([student, padding], -1).log_softmax(-1)
    return nn.functional.kl_div(log_student, teacher.log_softmax(-1), reduction="sum", log_target=True)


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 100), st.floats(-30, 10))
def test_padded_rows_of_a_teacher_do_not_count_as_they_do_with_zeros_for_the_student(padded: int, logit: float) -> None:
    """Where the student has a padded class with a logit of 0, the class has mass, and the gradients are others."""
    torch.manual_seed(0)
    student, teacher = nn.Linear(8, 50, bias=False), nn.Linear(8, 50 + padded, bias=False)
    teacher.requires_grad_(requires_grad=False)
    features, teacher_features = torch.randn(1, 6, 8), torch.randn(1, 6, 8)
    teacher.weight[50:] = 0
    teacher_features[..., 0] = 1
    teacher.weight[50:, 0] = logit
    labels = torch.zeros(1, 6, dtype=torch.int64)
    criterion = objective((LogitsObjective(type="logits", temperature=1.0),), TRAIN)
    cut = States(teacher_features, lambda rows: teacher(rows)[:, :50], (), 50, teacher)
    ours = loss_in_pieces(criterion, states(student, features), (cut,), Batch(labels, labels))
    real = teacher(teacher_features)[0, :, :50]
    expected = nn.functional.kl_div(
        student(features)[0].log_softmax(-1), real.log_softmax(-1), reduction="sum", log_target=True
    )
    torch.testing.assert_close(ours, expected)
    zeros = liger_loss(student(features)[0], teacher(teacher_features)[0])
    gradients = [torch.autograd.grad(loss, student.weight, retain_graph=True)[0] for loss in (ours, zeros)]
    assert not torch.allclose(*gradients, rtol=1e-3)
