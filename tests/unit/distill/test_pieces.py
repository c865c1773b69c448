"""The loss in pieces is the loss of all positions, with its gradients, and holds an eighth of what that holds."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from understudy.data.loader import IGNORED
from understudy.distill.objectives import Batch, Mixed, objective
from understudy.distill.pieces import loss_in_pieces
from understudy.models import outputs
from understudy.models.outputs import Outputs, States
from understudy.plan.ledger import Ledger
from understudy.recipe import LabelsObjective, LogitsObjective, Train

BOTH = (LabelsObjective(type="labels", weight=0.3), LogitsObjective(type="logits", weight=0.7, temperature=2.0))
TRAIN = Train(steps=1, label_smoothing=0.1)


def states(head: nn.Linear, known: Tensor) -> States:
    return States(known, head, (*head.parameters(),), head.out_features)


def case(positions: int, vocabulary: int, width: int) -> tuple[nn.Linear, Tensor, States, Batch]:
    torch.manual_seed(0)
    head, other = nn.Linear(width, vocabulary), nn.Linear(2 * width, vocabulary).requires_grad_(requires_grad=False)
    known = torch.randn(2, positions // 2, width, requires_grad=True)
    labels = torch.randint(vocabulary, (2, positions // 2))
    labels[0, :3] = IGNORED
    return head, known, states(other, torch.randn(2, positions // 2, 2 * width)), Batch(labels.clone(), labels)


@pytest.fixture
def few_held(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Seven positions at a time, of a vocabulary of 50."""
    monkeypatch.setattr(outputs, "HELD", 7 * 50)
    return


@pytest.mark.usefixtures("few_held")
@pytest.mark.parametrize("mixed", [True, False])
@pytest.mark.parametrize("with_teacher", [True, False])
def test_loss_and_gradients_are_those_of_all_positions(with_teacher: bool, mixed: bool) -> None:
    head, known, teacher, batch = case(40, 50, 8)
    batch = batch._replace(mixed=Mixed(batch.labels.flip(0), 0.3) if mixed else None)
    learned = objective(BOTH if with_teacher else BOTH[:1], TRAIN)
    whole = learned(Outputs(head(known)), Outputs(teacher.head(teacher.states)), batch)
    expected = torch.autograd.grad(3 * whole, (known, *head.parameters()))
    found = loss_in_pieces(learned, states(head, known), teacher if with_teacher else None, batch)
    torch.testing.assert_close(found, whole, rtol=1e-6, atol=0)
    for ours, theirs in zip(torch.autograd.grad(3 * found, (known, *head.parameters())), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)


@pytest.mark.usefixtures("few_held")
def test_a_head_in_half_precision_gets_gradients_of_its_own_precision() -> None:
    head, known, teacher, batch = case(40, 50, 8)
    learned = objective(BOTH, TRAIN)
    with torch.autocast("cpu", torch.bfloat16):
        found = loss_in_pieces(learned, states(head, known), teacher, batch)
        whole = learned(Outputs(head(known)), Outputs(teacher.head(teacher.states)), batch)
    torch.testing.assert_close(found, whole, rtol=1e-4, atol=0)
    head.bfloat16()
    loss_in_pieces(learned, states(head, known.bfloat16()), teacher, batch).backward()
    assert head.weight.grad is not None
    assert head.weight.grad.dtype is torch.bfloat16


def peak(in_pieces: bool) -> int:
    """Of a distillation step's loss at a vocabulary of 128k and 8,192 tokens, on tensors without memory."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    ledger = Ledger(vocabulary=128_000, grain=1)
    with FakeTensorMode(), ledger.watching():
        head, known, teacher, batch = case(8192, 128_000, 256)
        ledger.forget()
        before = ledger.peak().bytes
        if in_pieces:
            loss = loss_in_pieces(objective(BOTH, TRAIN), states(head, known), teacher, batch)
        else:
            loss = objective(BOTH, TRAIN)(Outputs(head(known)), Outputs(teacher.head(teacher.states)), batch)
        loss.backward()
    return ledger.peak().bytes - before


def test_it_holds_at_most_an_eighth_at_a_vocabulary_of_128k() -> None:
    assert 8 * peak(in_pieces=True) <= peak(in_pieces=False)
