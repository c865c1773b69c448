"""Contrastive distillation: against loops in numpy, its bounds, and what it does not depend on."""

from math import log
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Size, Tensor, nn

from tests.unit.objectives.test_hidden_states import Model, shapes, states, with_objective
from tests.unit.plan.test_depth import llama, planned
from tests.unit.recipe.test_objectives import values
from understudy.data.loader import IGNORED
from understudy.errors import InputError
from understudy.models.outputs import Outputs, OutputShapes
from understudy.objectives.batch import Batch
from understudy.objectives.crd import ContrastiveObjective, contrast
from understudy.objectives.objective import Context, Objective, objective
from understudy.plan.choices import refusal
from understudy.plan.trace import traces
from understudy.recipe import Degrees, Train
from understudy.recipe.file import from_values

Array = NDArray[np.float64]
STUDENT, TEACHER = (2, 4, 3), (5, 4, 6)
IMAGES = torch.tensor([1, 0, 2, 1, 3])
TEXT = torch.tensor([[1, 2, IGNORED, 3], [IGNORED] * 4, [0, 1, 2, 3], [IGNORED, 2, 1, 0], [1, IGNORED, IGNORED, 4]])
MASK = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 0]])


def built(student: Model = STUDENT, teacher: Model = TEACHER, **section: Any) -> Objective:
    sections = [ContrastiveObjective(type="crd", **{"width": 7, **section})]
    return objective(sections, Context(Train(steps=1), 0, shapes(student), {"teacher": shapes(teacher)})).double()


def expected(crd: Objective, student: Array, teacher: Array, temperature: float) -> list[float]:
    """Each example's loss, the mean of both directions."""
    weights = {name.split(".", 2)[-1]: value.detach().numpy() for name, value in crd.named_parameters()}
    ours, theirs = (
        vectors @ weights[f"{model}_projection.weight"].T + weights[f"{model}_projection.bias"]
        for model, vectors in (("student", student), ("teacher", teacher))
    )
    cosines = [[a @ b / np.linalg.norm(a) / np.linalg.norm(b) for b in theirs] for a in ours]
    scores = np.exp(np.array(cosines) / temperature)
    return [
        -0.5 * (log(scores[i, i] / scores[i].sum()) + log(scores[i, i] / scores[:, i].sum())) for i in range(len(ours))
    ]


@pytest.mark.parametrize("temperature", [0.07, 1.0])
def test_the_loss_is_that_of_its_formula(temperature: float) -> None:
    torch.manual_seed(0)
    crd, ours, theirs = built(temperature=temperature), states(STUDENT, 5), states(TEACHER, 5)
    first, second = (outputs.hidden_states[-1].numpy().mean(1) for outputs in (ours, theirs))
    loss = crd(ours, (theirs,), Batch(IMAGES, IMAGES)).item()
    assert loss == pytest.approx(sum(expected(crd, first, second, temperature)), rel=1e-10)


def test_padding_does_not_count() -> None:
    torch.manual_seed(0)
    crd, ours, theirs = built(), states(STUDENT, 5), states(TEACHER, 5)
    first, second = (
        np.stack([outputs.hidden_states[-1][row, : MASK[row].sum()].numpy().mean(0) for row in range(5)])
        for outputs in (ours, theirs)
    )
    loss = crd(ours._replace(mask=MASK), (theirs,), Batch(IMAGES, IMAGES)).item()
    assert loss == pytest.approx(sum(expected(crd, first, second, 0.07)), rel=1e-10)


def test_sequences_without_a_target_are_no_negatives_and_an_example_counts_once_for_each_target() -> None:
    torch.manual_seed(0)
    crd, ours, theirs = built(), states(STUDENT, 5), states(TEACHER, 5)
    counted = TEXT.numpy() != IGNORED
    first, second = (
        np.stack([outputs.hidden_states[-1][row].numpy()[counted[row]].mean(0) for row in (0, 2, 3, 4)])
        for outputs in (ours, theirs)
    )
    loss = crd(ours, (theirs,), Batch(TEXT, TEXT)).item()
    assert loss == pytest.approx(np.dot([3, 4, 3, 2], expected(crd, first, second, 0.07)), rel=1e-10)


def test_its_gradients_pass_gradcheck() -> None:
    torch.manual_seed(0)
    crd, ours, theirs = built(temperature=0.5), states(STUDENT, 5), states(TEACHER, 5)

    def loss(last: Tensor, *_weights: Tensor) -> Tensor:
        hidden = (*ours.hidden_states[:-1], last)
        total: Tensor = crd(ours._replace(hidden_states=hidden), (theirs,), Batch(TEXT, TEXT))
        return total

    assert torch.autograd.gradcheck(loss, (ours.hidden_states[-1].requires_grad_(), *crd.parameters()))


def outputs(last: Tensor) -> Outputs:
    return Outputs(torch.zeros(len(last), 5), (last,))


@settings(deadline=None, max_examples=25)
@given(st.permutations(range(5)), st.integers(0, 2**31))
def test_it_does_not_depend_on_the_order_of_examples(order: list[int], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    ours, theirs = (torch.randn(5, 4, width, generator=generator).double() for width in (3, 6))
    crd = built()
    loss = crd(outputs(ours), (outputs(theirs),), Batch(TEXT, TEXT))
    again = crd(outputs(ours[order]), (outputs(theirs[order]),), Batch(TEXT[order], TEXT[order]))
    assert loss.item() > 0
    assert again.item() == pytest.approx(loss.item(), rel=1e-9)


@settings(deadline=None, max_examples=25)
@given(st.integers(2, 6), st.floats(0.05, 2))
def test_it_is_least_for_embeddings_of_the_teacher_s_directions(count: int, temperature: float) -> None:
    """At right angles the loss is log(1 + (n - 1) exp(-1 / T)) an example, and log n if all are alike."""
    labels, alone = torch.zeros(count, dtype=torch.long), nn.Identity()
    batch, apart = Batch(labels, labels), torch.eye(count, dtype=torch.double)[:, None]
    same = torch.ones_like(apart)
    for state, expected_loss in [(apart, log(1 + (count - 1) * np.exp(-1 / temperature))), (same, log(count))]:
        loss = contrast(outputs(3 * state), (outputs(state),), batch, alone, alone, temperature=temperature)
        assert loss.item() == pytest.approx(count * expected_loss, rel=1e-9)


@pytest.mark.parametrize("labels", [torch.tensor([1]), torch.tensor([IGNORED, 1]), torch.full((2, 4), IGNORED)])
def test_an_example_without_negatives_has_neither_loss_nor_gradient(labels: Tensor) -> None:
    torch.manual_seed(0)
    crd, ours = built().float(), torch.randn(len(labels), 4, 3).requires_grad_()
    loss = crd(outputs(ours), (outputs(torch.randn(len(labels), 4, 6)),), Batch(labels, labels))
    loss.backward()
    assert loss.item() == 0
    for gradient in (ours.grad, *(weight.grad for weight in crd.parameters())):
        assert gradient is not None
        assert not gradient.any()


def test_half_precision_is_compared_in_full() -> None:
    """Only the projections compute in half precision."""
    torch.manual_seed(0)
    ours, theirs = torch.randn(5, 4, 3), torch.randn(5, 4, 6)
    batch, alone = Batch(IMAGES, IMAGES), nn.Identity()
    expected_loss = contrast(outputs(ours), (outputs(ours),), batch, alone, alone, temperature=0.07)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = contrast(outputs(ours), (outputs(ours),), batch, alone, alone, temperature=0.07)
        assert built().float()(outputs(ours), (outputs(theirs),), batch).dtype is torch.float32
    torch.testing.assert_close(loss, expected_loss)


def test_each_model_has_a_projection_and_may_be_convolutional() -> None:
    teacher = OutputShapes((Size((8, 4, 4)),))
    crd = objective(
        [ContrastiveObjective(type="crd")], Context(Train(steps=1), 0, shapes(STUDENT), {"teacher": teacher})
    )
    assert {name.split(".", 2)[-1]: tuple(weight.shape) for name, weight in crd.named_parameters()} == {
        "student_projection.weight": (128, 3),
        "student_projection.bias": (128,),
        "teacher_projection.weight": (128, 8),
        "teacher_projection.bias": (128,),
    }


def test_a_hidden_state_without_positions_is_refused() -> None:
    context = Context(Train(steps=1), 0, shapes(STUDENT), {"teacher": OutputShapes((Size((8,)),))})
    with pytest.raises(InputError, match=r"student\.distill\[0\]: a hidden state of the teacher has the shape \(8,\)"):
        objective([ContrastiveObjective(type="crd")], context)


@pytest.mark.parametrize(
    ("train", "packing", "error"),
    [
        ({"strategy": "pp"}, "wrapped", r"crd compares last hidden states, which stages \(pp\) do not return"),
        ({"strategy": "cp"}, "wrapped", r"crd compares whole sequences, of which each process has a part \(cp\)"),
        ({"strategy": {"tp": 2, "sequence_parallel": True}}, "wrapped", "leave sequence_parallel out"),
        ({"strategy": "ddp"}, "documents", "several documents; use packing: wrapped"),
        ({"strategy": "ddp", "batch_size": 4}, "wrapped", "compares at least 2 examples .* and each has 1"),
        ({"strategy": "fsdp"}, "wrapped", None),
    ],
)
def test_a_recipe_under_which_it_has_nothing_to_compare_is_refused(
    train: dict[str, Any], packing: str, error: str | None
) -> None:
    train = {"steps": 1, "gradient_accumulation_steps": 2, **train}
    recipe = values("causal-lm", distill=[{"type": "labels"}, {"type": "crd"}], train=train)
    recipe["data"]["text"] = {"packing": packing}
    recipe = {**recipe, "resources": {"distill": {"processes": 2}}}
    if error is None:
        assert from_values(recipe, (), "here").objectives[1].type == "crd"
        return
    with pytest.raises(InputError, match=rf"student\.distill\[1\]: .*{error}"):
        from_values(recipe, (), "here")


def test_the_plan_counts_its_projections_and_leaves_single_examples_out() -> None:
    """Two of 64 x 128 with biases in fp32, with the two moments of AdamW."""
    plain = planned(llama(2), llama(3))
    job = with_objective(ContrastiveObjective(type="crd"), plain)
    without, with_them = (traces(each, Degrees(), "cpu", torch.float32)[0] for each in (plain, job))
    assert with_them.state - without.state == pytest.approx(3 * 4 * 2 * (64 + 1) * 128, abs=64)
    assert refusal(job, Degrees(dp_shard=4), 8) is not None
    assert refusal(job, Degrees(dp_shard=2), 8) is None
