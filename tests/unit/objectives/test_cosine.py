"""The cosine of hidden states: against numpy in double precision, its projection, and models that do not fit it."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Size, Tensor

from tests.unit.objectives.test_hidden_states import Model, shapes, states
from tests.unit.recipe.test_objectives import values
from understudy.data.loader import IGNORED
from understudy.errors import InputError
from understudy.models.outputs import OutputShapes
from understudy.objectives.batch import Batch
from understudy.objectives.cosine import CosineObjective
from understudy.objectives.objective import Context, Objective, objective
from understudy.recipe import Train
from understudy.recipe.file import from_values

STUDENT, TEACHER, AS_WIDE = (2, 4, 3), (5, 4, 6), (3, 4, 3)
TEXT = torch.tensor([[1, 2, IGNORED, 3], [IGNORED] * 4, [0, 1, 2, 3]])


def built(student: Model, teacher: Model) -> Objective:
    sections = [CosineObjective(type="cosine")]
    return objective(sections, Context(Train(steps=1), 0, shapes(student), {"teacher": shapes(teacher)})).double()


@pytest.mark.parametrize("teacher", [TEACHER, AS_WIDE])
@pytest.mark.parametrize("labels", [torch.tensor([1, 0, 2]), TEXT])
def test_the_loss_is_that_of_its_formula(teacher: Model, labels: Tensor) -> None:
    torch.manual_seed(0)
    cosine, ours, theirs = built(STUDENT, teacher), states(STUDENT), states(teacher)
    first, second = ours.hidden_states[-1].numpy(), theirs.hidden_states[-1].numpy()
    for weight in cosine.parameters():
        first = np.einsum("bpw,vw->bpv", first, weight.detach().numpy())
    dots, norms = (first * second).sum(-1), np.linalg.norm(first, axis=-1) * np.linalg.norm(second, axis=-1)
    distances = 1 - dots / norms
    expected = distances.mean(1).sum() if labels.ndim == 1 else distances[labels.numpy() != IGNORED].sum()
    assert cosine(ours, (theirs,), Batch(labels, labels)).item() == pytest.approx(expected, rel=1e-10)


def test_padding_of_a_text_with_a_label_does_not_count() -> None:
    torch.manual_seed(0)
    cosine, ours, theirs = built(STUDENT, TEACHER), states(STUDENT), states(TEACHER)
    labels, mask = torch.tensor([1, 0, 2]), torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 1, 1]])
    parts = [
        cosine(
            ours._replace(hidden_states=tuple(state[row : row + 1, :count] for state in ours.hidden_states)),
            (theirs._replace(hidden_states=tuple(state[row : row + 1, :count] for state in theirs.hidden_states)),),
            Batch(labels[row : row + 1], labels[row : row + 1]),
        )
        for row, count in enumerate(mask.sum(1).tolist())
    ]
    loss = cosine(ours._replace(mask=mask), (theirs,), Batch(labels, labels))
    torch.testing.assert_close(loss, torch.stack(parts).sum())


def test_it_is_0_for_the_teachers_direction_and_2_for_the_opposite() -> None:
    cosine, theirs = built(AS_WIDE, AS_WIDE), states(AS_WIDE, 1)
    label = torch.tensor([1])
    for factor, expected in [(3.0, 0), (-0.5, 2)]:
        ours = theirs._replace(hidden_states=tuple(factor * state for state in theirs.hidden_states))
        assert cosine(ours, (theirs,), Batch(label, label)).item() == pytest.approx(expected, abs=1e-12)


def test_its_gradients_pass_gradcheck() -> None:
    torch.manual_seed(0)
    cosine, ours, theirs = built(STUDENT, TEACHER), states(STUDENT), states(TEACHER)

    def loss(last: Tensor, *_weights: Tensor) -> Tensor:
        hidden = (*ours.hidden_states[:-1], last)
        total: Tensor = cosine(ours._replace(hidden_states=hidden), (theirs,), Batch(TEXT, TEXT))
        return total

    assert torch.autograd.gradcheck(loss, (ours.hidden_states[-1].requires_grad_(), *cosine.parameters()))


def test_only_other_widths_have_a_projection() -> None:
    assert [tuple(weight.shape) for weight in built(STUDENT, TEACHER).parameters()] == [(6, 3)]
    assert not list(built(STUDENT, AS_WIDE).parameters())


@pytest.mark.parametrize(
    ("teacher", "error"),
    [
        (shapes((5, 9, 6)), r"student\.distill\[0\]: the student's last .* has 4 positions, and the teacher's 9;"),
        (OutputShapes((Size((8, 4, 4)),) * 3), r"student\.distill\[0\]: .* of the teacher has the shape \(8, 4, 4\)"),
    ],
)
def test_models_that_do_not_fit_are_refused(teacher: OutputShapes, error: str) -> None:
    context = Context(Train(steps=1), 0, shapes(STUDENT), {"teacher": teacher})
    with pytest.raises(InputError, match=error):
        objective([CosineObjective(type="cosine")], context)


@pytest.mark.parametrize(
    ("strategy", "error"),
    [
        ("pp", r"student\.distill\[1\]: cosine compares last hidden states, which stages \(pp\) do not return"),
        ({"tp": 2, "sequence_parallel": True}, r"student\.distill\[1\]: .*leave sequence_parallel out"),
        ("fsdp", None),
    ],
)
def test_the_recipe_is_refused_with_a_strategy_that_hides_layers(strategy: Any, error: str | None) -> None:
    train = {"steps": 1, "strategy": strategy, "gradient_accumulation_steps": 2}
    recipe = values("causal-lm", distill=[{"type": "labels"}, {"type": "cosine"}], train=train)
    recipe = {**recipe, "resources": {"distill": {"processes": 2}}}
    if error is None:
        assert from_values(recipe, (), "here").objectives[1].type == "cosine"
        return
    with pytest.raises(InputError, match=error):
        from_values(recipe, (), "here")
