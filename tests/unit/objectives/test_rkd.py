"""Relations between examples: against loops over pairs and triples in numpy, and what they do not depend on."""

from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Size, Tensor

from tests.unit.objectives.test_hidden_states import Model, shapes, states, with_objective
from tests.unit.plan.test_depth import llama, planned
from tests.unit.recipe.test_objectives import values
from understudy.data.loader import IGNORED
from understudy.errors import InputError
from understudy.models.outputs import Outputs, OutputShapes
from understudy.objectives.batch import Batch
from understudy.objectives.objective import Context, Objective, objective
from understudy.objectives.rkd import RelationalObjective
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
    sections = [RelationalObjective(type="rkd", **section)]
    return objective(sections, Context(Train(steps=1), 0, shapes(student), {"teacher": shapes(teacher)})).double()


def huber(student: float, teacher: float) -> float:
    gap = abs(student - teacher)
    return 0.5 * gap**2 if gap <= 1 else gap - 0.5


def expected(student: Array, teacher: Array, distance_weight: float = 1, angle_weight: float = 2) -> float:
    """The mean over pairs, and over triples, of the Huber losses."""
    count = range(len(student))
    ours, theirs = (
        {(i, j): np.linalg.norm(vectors[i] - vectors[j]) for i, j in permutations(count, 2)}
        for vectors in (student, teacher)
    )
    our_mean, their_mean = np.mean(list(ours.values())), np.mean(list(theirs.values()))
    by_pair = [huber(ours[pair] / our_mean, theirs[pair] / their_mean) for pair in ours]
    by_triple = [
        huber(*(float(angle(vectors[i], vectors[j], vectors[k])) for vectors in (student, teacher)))
        for i, j, k in permutations(count, 3)
    ]
    return float(distance_weight * np.mean(by_pair) + angle_weight * np.mean(by_triple))


def angle(first: Array, corner: Array, last: Array) -> float:
    """The cosine of the angle at the corner."""
    one, other = first - corner, last - corner
    return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))


@pytest.mark.parametrize("weights", [{}, {"distance_weight": 3.0}, {"angle_weight": 0.0}, {"distance_weight": 0.0}])
@pytest.mark.parametrize("factor", [1.0, 20.0])
def test_the_loss_is_that_of_its_formula(weights: dict[str, float], factor: float) -> None:
    """A factor of the student's first example takes its distances beyond the threshold of the Huber loss."""
    torch.manual_seed(0)
    ours, theirs = states(STUDENT, 5), states(TEACHER, 5)
    ours.hidden_states[-1][0] *= factor
    first, second = (outputs.hidden_states[-1].numpy().mean(1) for outputs in (ours, theirs))
    loss = built(**weights)(ours, (theirs,), Batch(IMAGES, IMAGES)).item()
    assert loss == pytest.approx(5 * expected(first, second, **weights), rel=1e-10)


def test_padding_does_not_count() -> None:
    torch.manual_seed(0)
    ours, theirs = states(STUDENT, 5), states(TEACHER, 5)
    first, second = (
        np.stack([outputs.hidden_states[-1][row, : MASK[row].sum()].numpy().mean(0) for row in range(5)])
        for outputs in (ours, theirs)
    )
    loss = built()(ours._replace(mask=MASK), (theirs,), Batch(IMAGES, IMAGES)).item()
    assert loss == pytest.approx(5 * expected(first, second), rel=1e-10)


def test_sequences_without_a_target_are_left_out_and_the_loss_counts_once_for_each_target() -> None:
    torch.manual_seed(0)
    ours, theirs = states(STUDENT, 5), states(TEACHER, 5)
    counted = TEXT.numpy() != IGNORED
    first, second = (
        np.stack([outputs.hidden_states[-1][row].numpy()[counted[row]].mean(0) for row in (0, 2, 3, 4)])
        for outputs in (ours, theirs)
    )
    loss = built()(ours, (theirs,), Batch(TEXT, TEXT)).item()
    assert loss == pytest.approx(12 * expected(first, second), rel=1e-10)


def test_its_gradients_pass_gradcheck() -> None:
    torch.manual_seed(0)
    rkd, ours, theirs = built(), states(STUDENT, 5), states(TEACHER, 5)

    def loss(last: Tensor) -> Tensor:
        hidden = (*ours.hidden_states[:-1], last)
        total: Tensor = rkd(ours._replace(hidden_states=hidden), (theirs,), Batch(TEXT, TEXT))
        return total

    assert torch.autograd.gradcheck(loss, (ours.hidden_states[-1].requires_grad_(),))


@settings(deadline=None, max_examples=25)
@given(st.integers(3, 7), st.floats(0.01, 100), st.integers(0, 2**31))
def test_it_is_0_for_the_teachers_space_rotated_scaled_and_shifted(count: int, scale: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    theirs = torch.randn(count, 4, 6, dtype=torch.double, generator=generator)
    rotation, _ = torch.linalg.qr(torch.randn(6, 6, dtype=torch.double, generator=generator))
    ours = scale * theirs @ rotation + torch.randn(6, dtype=torch.double, generator=generator)
    labels = torch.zeros(count, dtype=torch.long)
    loss = built(TEACHER, TEACHER)(outputs(ours), (outputs(theirs),), Batch(labels, labels))
    assert loss.item() == pytest.approx(0, abs=1e-9)


@settings(deadline=None, max_examples=25)
@given(st.permutations(range(5)), st.floats(0.01, 100))
def test_it_depends_neither_on_the_order_of_examples_nor_on_the_scale_of_the_teachers_space(
    order: list[int], scale: float
) -> None:
    torch.manual_seed(0)
    rkd, ours, theirs = built(), torch.randn(5, 4, 3).double(), torch.randn(5, 4, 6).double()
    loss = rkd(outputs(ours), (outputs(theirs),), Batch(TEXT, TEXT))
    again = rkd(outputs(ours[order]), (outputs(scale * theirs[order]),), Batch(TEXT[order], TEXT[order]))
    assert loss.item() > 0
    assert again.item() == pytest.approx(loss.item(), rel=1e-9)


@pytest.mark.parametrize("labels", [torch.tensor([1]), torch.tensor([IGNORED, 1]), torch.tensor([1, 1, 1])])
def test_examples_without_relations_have_neither_loss_nor_gradient(labels: Tensor) -> None:
    """One example, one with a target, and copies of one, such as a part of a batch that does not count."""
    theirs = torch.randn(1, 4, 6).repeat(len(labels), 1, 1)
    ours = torch.randn(1, 4, 3).repeat(len(labels), 1, 1).requires_grad_()
    loss = built().float()(outputs(ours), (outputs(theirs),), Batch(labels, labels))
    loss.backward()
    assert loss.item() == 0
    assert ours.grad is not None
    assert not ours.grad.any()


def test_two_equal_examples_among_others_have_a_finite_gradient() -> None:
    ours = torch.randn(4, 4, 3)
    ours[1] = ours[0]
    ours.requires_grad_()
    labels = torch.zeros(4, dtype=torch.long)
    built().float()(outputs(ours), (outputs(torch.randn(4, 4, 6)),), Batch(labels, labels)).backward()
    assert ours.grad is not None
    assert ours.grad.isfinite().all()


def test_half_precision_is_compared_in_full() -> None:
    ours, theirs = torch.randn(5, 4, 3).bfloat16(), torch.randn(5, 4, 6).bfloat16()
    batch, rkd = Batch(IMAGES, IMAGES), built()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = rkd(outputs(ours), (outputs(theirs),), batch)
    torch.testing.assert_close(loss, rkd(outputs(ours.float()), (outputs(theirs.float()),), batch))


def outputs(last: Tensor) -> Outputs:
    return Outputs(torch.zeros(len(last), 5), (last,))


def test_it_has_no_parameters_and_takes_any_widths_and_positions() -> None:
    assert not list(built(STUDENT, (5, 9, 6)).parameters())
    convolutional = OutputShapes((Size((8, 4, 4)),))
    context = Context(Train(steps=1), 0, shapes(STUDENT), {"teacher": convolutional})
    rkd = objective([RelationalObjective(type="rkd")], context)
    theirs = Outputs(torch.zeros(5, 5), (torch.randn(5, 8, 4, 4),))
    assert rkd(outputs(torch.randn(5, 4, 3)), (theirs,), Batch(IMAGES, IMAGES)).item() > 0


def test_a_hidden_state_without_positions_is_refused() -> None:
    context = Context(Train(steps=1), 0, shapes(STUDENT), {"teacher": OutputShapes((Size((8,)),))})
    with pytest.raises(InputError, match=r"student\.distill\[0\]: a hidden state of the teacher has the shape \(8,\)"):
        objective([RelationalObjective(type="rkd")], context)


def recipe(train: dict[str, Any], packing: str = "wrapped", **section: Any) -> dict[str, Any]:
    train = {"steps": 1, "batch_size": 16, "gradient_accumulation_steps": 2, **train}
    settings = values("causal-lm", distill=[{"type": "labels"}, {"type": "rkd", **section}], train=train)
    settings["data"]["text"] = {"packing": packing}
    return {**settings, "resources": {"distill": {"processes": 2}}}


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"train": {"strategy": "pp"}}, r"rkd compares last hidden states, which stages \(pp\) do not return"),
        ({"train": {"strategy": "cp"}}, r"rkd compares whole sequences, of which each process has a part \(cp\)"),
        ({"train": {"strategy": {"tp": 2, "sequence_parallel": True}}}, "leave sequence_parallel out"),
        ({"train": {"strategy": "ddp"}, "packing": "documents"}, "several documents; use packing: wrapped"),
        (
            {"train": {"strategy": "ddp", "gradient_accumulation_steps": 4}},
            r"compares at least 3 examples of a micro-batch .* each has 2 \(batch_size 16 / 2 processes / 4 micro-",
        ),
        ({"train": {"strategy": "ddp"}, "distance_weight": 0, "angle_weight": 0}, "are both 0"),
    ],
)
def test_a_recipe_under_which_it_has_nothing_to_compare_is_refused(changes: dict[str, Any], error: str) -> None:
    with pytest.raises(InputError, match=rf"student\.distill\[1\].*: .*{error}"):
        from_values(recipe(**changes), (), "here")


@pytest.mark.parametrize("strategy", ["ddp", "fsdp", "tp"])
def test_a_recipe_with_whole_examples_is_accepted(strategy: str) -> None:
    section = from_values(recipe({"strategy": strategy}), (), "here").objectives[1]
    assert section == RelationalObjective(type="rkd", distance_weight=1, angle_weight=2)


def test_the_plan_traces_it_and_leaves_small_micro_batches_out() -> None:
    job = with_objective(RelationalObjective(type="rkd"), planned(llama(2), llama(3), batch_size=32))
    assert traces(job, Degrees(), "cpu", torch.float32)[0].peak.bytes > 0
    assert refusal(job, Degrees(dp_shard=2), 8) is None
    why = refusal(job, Degrees(dp_shard=4), 8)
    assert why is not None
    assert why.startswith("student.distill.rkd: compares at least 3 examples of a micro-batch")
