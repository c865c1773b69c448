"""Attention maps: against numpy in double precision, what they do not depend on, and layers that do not fit."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Size, Tensor

from tests.unit.jobs.specs import training_settings
from tests.unit.objectives.test_hidden_states import Model, shapes, states, with_objective
from tests.unit.recipe.test_objectives import values
from understudy.data.loader import IGNORED
from understudy.errors import InputError
from understudy.models.describe import describe
from understudy.models.facts import Facts
from understudy.models.outputs import Outputs, OutputShapes
from understudy.objectives.attention_transfer import AttentionTransferObjective
from understudy.objectives.batch import Batch
from understudy.objectives.objective import Context, Objective, objective
from understudy.plan.placeholders import PlaceholderExamples
from understudy.plan.planned import Planned
from understudy.plan.trace import traces
from understudy.recipe import ArchitectureModel, Degrees, Train
from understudy.recipe.file import from_values

Array = NDArray[np.float64]
STUDENT, TEACHER = (2, 4, 3), (5, 4, 6)
PAIRS = {"uniform": ((1, 3), (2, 5)), "last": ((2, 5),)}
IMAGES = torch.tensor([1, 0, 2])
TEXT = torch.tensor([[1, 2, IGNORED, 3], [IGNORED] * 4, [0, 1, 2, 3]])
MASK = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 1, 1]])
STAGES = OutputShapes((Size((3, 4, 4)), Size((3, 4, 4)), Size((6, 2, 2))))


def built(student: OutputShapes, teacher: OutputShapes, **section: Any) -> Objective:
    sections = [AttentionTransferObjective(type="attention_transfer", **section)]
    return objective(sections, Context(Train(steps=1), 0, student, {"teacher": teacher})).double()


def between(student: Model = STUDENT, teacher: Model = TEACHER, **section: Any) -> Objective:
    return built(shapes(student), shapes(teacher), **section)


def attention(positions: Array) -> Array:
    """An example's map, from its counted positions (n, width)."""
    energies: Array = np.einsum("lw,lw->l", positions, positions)
    return energies / np.sqrt((energies**2).sum())


def expected(student: Outputs, teacher: Outputs, pairs: Any, counted: Array, targets: list[int]) -> float:
    total = 0.0
    for ours, theirs in pairs:
        for row, count in enumerate(targets):
            first, second = (
                attention(outputs.hidden_states[layer][row].numpy()[counted[row]])
                for outputs, layer in ((student, ours), (teacher, theirs))
            )
            total += count * ((first - second) ** 2).sum()
    return total / len(pairs)


@pytest.mark.parametrize("layers", ["uniform", "last", ((0, 0), (2, 1), (2, 5))])
def test_the_loss_is_that_of_its_formula(layers: Any) -> None:
    torch.manual_seed(0)
    ours, theirs, pairs = states(STUDENT), states(TEACHER), PAIRS.get(layers, layers)
    loss = between(layers=layers)(ours, (theirs,), Batch(IMAGES, IMAGES)).item()
    assert loss == pytest.approx(expected(ours, theirs, pairs, np.ones((3, 4), bool), [1] * 3), rel=1e-10)


def test_padding_does_not_count() -> None:
    torch.manual_seed(0)
    ours, theirs = states(STUDENT), states(TEACHER)
    loss = between()(ours._replace(mask=MASK), (theirs,), Batch(IMAGES, IMAGES)).item()
    assert loss == pytest.approx(expected(ours, theirs, PAIRS["uniform"], MASK.bool().numpy(), [1] * 3), rel=1e-10)


def test_a_sequence_s_positions_without_a_target_do_not_count_and_it_does_once_for_each_target() -> None:
    torch.manual_seed(0)
    ours, theirs = states(STUDENT), states(TEACHER)
    loss = between()(ours, (theirs,), Batch(TEXT, TEXT)).item()
    kept = [
        outputs._replace(hidden_states=tuple(at[[0, 2]] for at in outputs.hidden_states)) for outputs in (ours, theirs)
    ]
    counted = TEXT[[0, 2]].numpy() != IGNORED
    assert loss == pytest.approx(expected(*kept, PAIRS["uniform"], counted, [3, 4]), rel=1e-10)


def convolutional(*widths: int) -> Outputs:
    """Hidden states of a network with maps of 4 x 4, 4 x 4 and 2 x 2."""
    sizes = zip(widths, (4, 4, 2), strict=True)
    return Outputs(torch.zeros(3, 5), tuple(torch.randn(3, width, at, at).double() for width, at in sizes))


def test_a_convolution_s_map_is_over_its_pixels() -> None:
    torch.manual_seed(0)
    ours, theirs = convolutional(3, 3, 6), convolutional(3, 5, 9)
    total = 0.0
    for row in range(3):
        for layer in (1, 2):
            energies = [np.square(each.hidden_states[layer][row].numpy()).sum(0) for each in (ours, theirs)]
            first, second = (energy / np.linalg.norm(energy) for energy in energies)
            total += ((first - second) ** 2).sum() / 2
    loss = built(STAGES, STAGES)(ours, (theirs,), Batch(IMAGES, IMAGES)).item()
    assert loss == pytest.approx(total, rel=1e-10)


@pytest.mark.parametrize("labels", [IMAGES, TEXT])
def test_its_gradients_pass_gradcheck(labels: Tensor) -> None:
    torch.manual_seed(0)
    transfer, ours, theirs = between(), states(STUDENT), states(TEACHER)

    def loss(first: Tensor, last: Tensor) -> Tensor:
        hidden = (ours.hidden_states[0], first, last)
        total: Tensor = transfer(ours._replace(hidden_states=hidden), (theirs,), Batch(labels, labels))
        return total

    assert torch.autograd.gradcheck(loss, [state.requires_grad_() for state in ours.hidden_states[1:]])


@settings(deadline=None, max_examples=25)
@given(st.floats(0.01, 100), st.integers(0, 2**31))
def test_it_is_0_for_the_teachers_states_rotated_and_scaled(scale: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    theirs = torch.randn(3, 4, 6, dtype=torch.double, generator=generator)
    rotation, _ = torch.linalg.qr(torch.randn(6, 6, dtype=torch.double, generator=generator))
    transfer = between((0, 4, 6), (0, 4, 6), layers=((0, 0),))
    ours, theirs_of = (Outputs(torch.zeros(3, 5), (state,)) for state in (scale * theirs @ rotation, theirs))
    assert transfer(ours, (theirs_of,), Batch(IMAGES, IMAGES)).item() == pytest.approx(0, abs=1e-12)


def test_maps_without_common_positions_are_at_a_distance_of_2() -> None:
    ours, theirs = torch.zeros(3, 4, 6), torch.zeros(3, 4, 6)
    ours[:, 0], theirs[:, 1] = 5, 0.1
    transfer = between((0, 4, 6), (0, 4, 6), layers=((0, 0),))
    outputs = [Outputs(torch.zeros(3, 5), (state,)) for state in (ours, theirs)]
    assert transfer(outputs[0], (outputs[1],), Batch(IMAGES, IMAGES)).item() == pytest.approx(2 * 3)


def test_half_precision_is_compared_in_full() -> None:
    torch.manual_seed(0)
    halves = [torch.randn(3, 4, width).bfloat16() for width in (3, 6)]
    transfer, batch = between((0, 4, 3), (0, 4, 6), layers=((0, 0),)), Batch(IMAGES, IMAGES)
    ours, theirs = (Outputs(torch.zeros(3, 5), (state,)) for state in halves)
    full = [Outputs(torch.zeros(3, 5), (state.float(),)) for state in halves]
    torch.testing.assert_close(transfer(ours, (theirs,), batch), transfer(full[0], (full[1],), batch))


@pytest.mark.parametrize(
    ("student", "teacher", "layers", "error"),
    [
        (shapes(STUDENT), shapes(TEACHER), ((3, 1),), r"the student has 2 layers; 3 is none of them"),
        (shapes(STUDENT), shapes(TEACHER), ((1, 6),), r"the teacher has 5 layers; 6 is none of them"),
        (shapes(STUDENT), shapes((5, 9, 6)), "last", r".* layer 2 has the size \(4,\), and .* layer 5 \(9,\); name"),
        (STAGES, STAGES, ((1, 2),), r".* layer 1 has the size \(4, 4\), and that of the teacher's layer 2 \(2, 2\)"),
        (STAGES, shapes((2, 16, 6)), ((1, 1),), r".* has the size \(4, 4\), and that of the teacher's layer 1 \(16,\)"),
        (OutputShapes((Size((8,)),)), STAGES, ((0, 0),), r"a hidden state of the student has the shape \(8,\)"),
    ],
)
def test_layers_that_do_not_fit_are_refused(
    student: OutputShapes, teacher: OutputShapes, layers: Any, error: str
) -> None:
    with pytest.raises(InputError, match=rf"^student\.distill\[0\]\.layers\[0\]: {error}"):
        built(student, teacher, layers=layers)


@pytest.mark.parametrize(
    ("strategy", "packing", "error"),
    [
        ("pp", "wrapped", r"attention_transfer compares layers that stages \(pp\) have on different processes"),
        ("cp", "wrapped", r"attention_transfer compares maps of whole sequences, of which .* \(cp\)"),
        ({"tp": 2, "sequence_parallel": True}, "wrapped", "leave sequence_parallel out"),
        ("ddp", "documents", "several documents; use packing: wrapped"),
        ("tp", "wrapped", None),
    ],
)
def test_the_recipe_is_refused_with_a_strategy_that_divides_maps(
    strategy: Any, packing: str, error: str | None
) -> None:
    train = {"steps": 1, "strategy": strategy, "gradient_accumulation_steps": 2}
    distill = [{"type": "labels"}, {"type": "attention_transfer", "layers": [[1, 2]]}]
    recipe = {**values("causal-lm", distill=distill, train=train), "resources": {"distill": {"processes": 2}}}
    recipe["data"]["text"] = {"packing": packing}
    if error is None:
        assert from_values(recipe, (), "here").objectives[1].layers == ((1, 2),)
        return
    with pytest.raises(InputError, match=rf"student\.distill\[1\]: .*{error}"):
        from_values(recipe, (), "here")


def resnet(*widths: int) -> Any:
    config = {"embedding_size": 8, "hidden_sizes": list(widths), "depths": [1] * len(widths), "layer_type": "basic"}
    facts: Facts = {"task": "image-classification", "labels": ["a", "b"], "image": {"size": 16, "channels": 1}}
    facts |= {"mean": [0.5], "std": [0.5]}
    return describe(ArchitectureModel(type="resnet", config=config), facts, "student.model"), facts


def test_the_plan_traces_residual_networks() -> None:
    (student, facts), (teacher, _) = resnet(8, 16), resnet(12, 24)
    job = Planned(training_settings(Train(steps=1)), student, {"teacher": teacher}, PlaceholderExamples(facts, 64))
    job = with_objective(AttentionTransferObjective(type="attention_transfer"), job)
    assert traces(job, Degrees(), "cpu", torch.float32)[0].flops > 0
