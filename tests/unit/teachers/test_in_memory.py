"""The teacher beside a student in training."""

import torch
from torch import Tensor, nn

from understudy.models.outputs import Outputs
from understudy.objectives.batch import Batch
from understudy.recipe.objectives import Extra
from understudy.teachers.in_memory import ModelTeacher


class Noisy(nn.Module):
    """A model with dropout that remembers in which mode it was asked, and for what."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.5))
        self.asked: list[tuple[bool, frozenset[Extra]]] = []

    def forward(self, inputs: Tensor, extras: frozenset[Extra]) -> Outputs:
        self.asked.append((self.training, extras))
        return Outputs(self.layers(inputs), hidden_states=(inputs,) if extras else ())


def batch(inputs: Tensor) -> Batch:
    return Batch(inputs, torch.zeros(len(inputs), dtype=torch.long))


def test_it_is_frozen_and_does_not_learn() -> None:
    model = Noisy().train()
    teacher = ModelTeacher(model, frozenset())
    student = torch.randn(4, 3, requires_grad=True)
    (student * teacher.outputs(batch(torch.randn(4, 6))).logits).sum().backward()
    assert model.asked == [(False, frozenset())]
    assert not any(parameter.requires_grad for parameter in model.parameters())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert student.grad is not None


def test_it_says_the_same_every_time() -> None:
    teacher, inputs = ModelTeacher(Noisy().train(), frozenset()), torch.randn(4, 6)
    assert torch.equal(teacher.outputs(batch(inputs)).logits, teacher.outputs(batch(inputs)).logits)


def test_it_says_what_it_is_asked_for() -> None:
    teacher, inputs = ModelTeacher(Noisy(), frozenset({"hidden_states"})), torch.randn(4, 6)
    assert torch.equal(teacher.outputs(batch(inputs)).hidden_states[0], inputs)
