"""Buffers are restored after any use: changed in place, assigned anew, read by autograd."""

import torch
from torch import Tensor, nn

from understudy.models.buffers import Buffers, unchanged_buffers


class Counts(nn.Module):
    """Assigns its buffer anew at each pass, as code of a user may."""

    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("absent", None)

    def forward(self, inputs: Tensor) -> Tensor:
        self.count = self.count + len(inputs)
        return inputs


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 3), nn.BatchNorm1d(3), Counts())


def values(model: nn.Module) -> list[Tensor]:
    return [buffer.clone() for buffer in model.buffers()]


def test_what_a_pass_changes_is_put_back_in_the_same_tensors() -> None:
    model = net()
    model(torch.rand(4, 3))
    before, tensors = values(model), list(model.buffers())
    with unchanged_buffers(model):
        model(torch.rand(4, 3))
        assert not all(torch.equal(first, second) for first, second in zip(before, values(model), strict=True))
    assert all(torch.equal(first, second) for first, second in zip(before, values(model), strict=True))
    assert all(first is second for first, second in zip(tensors, model.buffers(), strict=True))


def test_a_backward_pass_goes_on_after_a_later_pass_was_undone() -> None:
    """As in a pipeline, which computes micro-batches forward before it goes back."""
    model, first, second = net(), torch.rand(4, 3), torch.rand(4, 3)
    loss = model(first).square().sum()
    with unchanged_buffers(model):
        later_loss = model(second).square().sum()
    (loss + later_loss).backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    plain = net()
    sum(plain(inputs).square().sum() for inputs in (first, second)).backward()
    expected = [parameter.grad for parameter in plain.parameters()]
    assert all(torch.equal(actual, reference) for actual, reference in zip(gradients, expected, strict=True))  # type: ignore[arg-type]


def test_they_can_be_put_back_more_than_once() -> None:
    model = net()
    buffers, before = Buffers(model), values(model)
    for _ in range(2):
        model(torch.rand(4, 3))
        buffers.restore()
        assert all(torch.equal(first, second) for first, second in zip(before, values(model), strict=True))
