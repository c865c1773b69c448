"""Hidden states: the distance against numpy in double precision, the layers, and errors before a rank starts."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Size, Tensor

from tests.unit.plan.test_depth import llama, planned
from tests.unit.recipe.test_objectives import values
from understudy.data.loader import IGNORED
from understudy.errors import InputError
from understudy.models.outputs import Outputs, OutputShapes
from understudy.objectives.batch import Batch
from understudy.objectives.hidden_states import HiddenStatesObjective
from understudy.objectives.objective import Context, Objective, objective
from understudy.plan.choices import refusal
from understudy.plan.depth import depths
from understudy.plan.planned import Planned
from understudy.plan.trace import traces
from understudy.recipe import Degrees, ObjectiveSection, Train
from understudy.recipe.file import from_values

Model = tuple[int, int, int]
"""Blocks, positions and width."""


def shapes(model: Model) -> OutputShapes:
    blocks, positions, width = model
    return OutputShapes((Size((positions, width)),) * (blocks + 1))


def built(student: Model, teacher: Model, seed: int = 0, **section: Any) -> Objective:
    sections = [HiddenStatesObjective(type="hidden_states", **section)]
    return objective(sections, Context(Train(steps=1), seed, shapes(student), {"teacher": shapes(teacher)})).double()


def states(model: Model, count: int = 3) -> Outputs:
    blocks, positions, width = model
    hidden = tuple(torch.randn(count, positions, width, dtype=torch.double) for _ in range(blocks + 1))
    return Outputs(torch.zeros(count, positions, 5, dtype=torch.double), hidden)


def weights(criterion: Objective) -> list[Tensor]:
    return [weight for name, weight in criterion.named_parameters() if "projections" in name]


STUDENT, TEACHER = (2, 4, 3), (5, 4, 6)
PAIRS = [((1, 3), (2, 5)), ((2, 5),), ((0, 0), (2, 1), (2, 5))]


@pytest.mark.parametrize(("layers", "pairs"), [("uniform", PAIRS[0]), ("last", PAIRS[1]), (PAIRS[2], PAIRS[2])])
@pytest.mark.parametrize("images", [True, False])
def test_the_loss_is_that_of_its_formula(layers: Any, pairs: Any, images: bool) -> None:
    torch.manual_seed(0)
    criterion, student, teacher = built(STUDENT, TEACHER, layers=layers), states(STUDENT), states(TEACHER)
    labels = torch.tensor([1, 0, 2] if images else [[1, 2, IGNORED, 3], [IGNORED] * 4, [0, 1, 2, 3]])
    expected = 0.0
    for (student_layer, teacher_layer), weight in zip(pairs, weights(criterion), strict=True):
        ours, theirs = student.hidden_states[student_layer].numpy(), teacher.hidden_states[teacher_layer].numpy()
        squared = np.square(np.einsum("bpw,vw->bpv", ours, weight.detach().numpy()) - theirs)
        if images:
            expected += squared.mean((1, 2)).sum()
        else:
            expected += (squared.sum(-1) / 6)[labels.numpy() != IGNORED].sum()
    loss = criterion(student, (teacher,), Batch(labels, labels)).item()
    assert loss == pytest.approx(expected / len(pairs), rel=1e-10)


def test_its_gradients_pass_gradcheck() -> None:
    torch.manual_seed(0)
    criterion, student, teacher = built(STUDENT, TEACHER), states(STUDENT), states(TEACHER)
    labels = torch.tensor([[1, 2, IGNORED, 3], [IGNORED] * 4, [0, 1, 2, 3]])

    def loss(first: Tensor, last: Tensor, *_weights: Tensor) -> Tensor:
        hidden = (student.hidden_states[0], first, last)
        total: Tensor = criterion(student._replace(hidden_states=hidden), (teacher,), Batch(labels, labels))
        return total

    inputs = [state.requires_grad_() for state in student.hidden_states[1:]]
    assert torch.autograd.gradcheck(loss, (*inputs, *weights(criterion)))


@pytest.mark.parametrize(
    ("student", "teacher", "layers"),
    [(3, 6, [2, 4, 6]), (2, 5, [3, 5]), (4, 2, [1, 1, 2, 2]), (3, 3, [1, 2, 3])],
)
def test_uniform_layers_are_at_the_same_share_of_the_depth(student: int, teacher: int, layers: list[int]) -> None:
    """Widths tell which layers of the teacher were taken."""
    widths = OutputShapes(tuple(Size((4, 10 + layer)) for layer in range(teacher + 1)))
    section = HiddenStatesObjective(type="hidden_states")
    criterion = section.build(Context(Train(steps=1), 0, shapes((student, 4, 3)), {"teacher": widths}))
    assert [len(weight) - 10 for weight in weights(criterion)] == layers


def test_projections_are_drawn_from_the_seed_alone() -> None:
    torch.manual_seed(0)
    first = built(STUDENT, TEACHER, seed=7)
    drawn = torch.rand(1)
    again, other_seed = built(STUDENT, TEACHER, seed=7), built(STUDENT, TEACHER, seed=8)
    torch.manual_seed(0)
    assert torch.equal(drawn, torch.rand(1))
    for ours, same, different in zip(weights(first), weights(again), weights(other_seed), strict=True):
        assert torch.equal(ours, same)
        assert not torch.equal(ours, different)


@pytest.mark.parametrize(
    ("teacher", "layers", "error"),
    [
        (TEACHER, [(1, 1), (3, 1)], r"student\.distill\[0\]\.layers\[1\]: the student has 2 layers; 3 is none of them"),
        (TEACHER, [(1, 6)], r"student\.distill\[0\]\.layers\[0\]: the teacher has 5 layers; 6 is none of them"),
        (
            (5, 9, 6),
            "last",
            r"student\.distill\[0\]: the student's layer 2 has 4 positions, and .* 9;",
        ),
    ],
)
def test_models_that_do_not_fit_are_refused(teacher: Model, layers: Any, error: str) -> None:
    with pytest.raises(InputError, match=error):
        built(STUDENT, teacher, layers=layers)


def test_hidden_states_of_images_with_channels_first_are_refused() -> None:
    convolutional = OutputShapes((Size((8, 4, 4)),) * 3)
    section = HiddenStatesObjective(type="hidden_states", layers="last")
    with pytest.raises(InputError, match=r"shape \(8, 4, 4\), and not \(positions, width\)"):
        section.build(Context(Train(steps=1), 0, convolutional, {"teacher": convolutional}))


@pytest.mark.parametrize(
    ("strategy", "error"),
    [
        ("pp", r"student\.distill\[1\]: hidden_states compares layers that stages \(pp\) have on different processes"),
        ({"tp": 2, "sequence_parallel": True}, r"student\.distill\[1\]: .*leave sequence_parallel out"),
        ("fsdp", None),
        ("tp", None),
    ],
)
def test_the_recipe_is_refused_with_a_strategy_that_hides_layers(strategy: Any, error: str | None) -> None:
    distill = [{"type": "labels"}, {"type": "hidden_states", "layers": [[1, 2]]}]
    train = {"steps": 1, "strategy": strategy, "gradient_accumulation_steps": 2}
    recipe = {**values("causal-lm", distill=distill, train=train), "resources": {"distill": {"processes": 2}}}
    if error is None:
        assert from_values(recipe, (), "here").objectives[1].layers == ((1, 2),)
        return
    with pytest.raises(InputError, match=error):
        from_values(recipe, (), "here")


def with_objective(section: ObjectiveSection, job: Planned) -> Planned:
    return replace(job, settings=replace(job.settings, objectives=(*job.settings.objectives, section)))


def with_hidden_states(layers: Any = "uniform", **train: Any) -> Any:
    section = HiddenStatesObjective(type="hidden_states", layers=layers)
    return with_objective(section, planned(llama(2), llama(3), **train))


def test_strategy_auto_leaves_stages_out() -> None:
    why = refusal(with_hidden_states(), Degrees(pp=2), 8)
    assert why is not None
    assert why.startswith("student.distill.hidden_states: hidden_states compares layers that stages (pp)")
    assert refusal(with_hidden_states(), Degrees(dp_shard=2), 8) is None


@pytest.mark.parametrize(
    ("layers", "error"),
    [(((2, 4),), r"the teacher has 3 layers; 4 is none"), (((3, 3),), r"the student has 2 layers; 3 is none")],
)
def test_the_plan_refuses_layers_that_a_model_does_not_have(layers: Any, error: str) -> None:
    with pytest.raises(InputError, match=r"^student\.distill\[2\]\.layers\[0\]: " + error):
        traces(with_hidden_states(layers), Degrees(), "cpu", torch.float32)


def test_the_plan_traces_all_layers_that_are_compared() -> None:
    assert depths(with_hidden_states()) == (None, {})


@pytest.mark.parametrize(("degrees", "parts"), [(Degrees(), 1), (Degrees(dp_replicate=2), 1), (Degrees(dp_shard=2), 2)])
def test_the_plan_counts_the_projections(degrees: Degrees, parts: int) -> None:
    """Two of 64 x 64 in fp32, with the two moments of AdamW."""
    plain = replace(with_hidden_states(), settings=planned(llama(2), llama(3)).settings)
    without, with_them = (traces(job, degrees, "cpu", torch.float32)[0] for job in (plain, with_hidden_states()))
    assert with_them.state - without.state == pytest.approx(3 * 4 * 2 * 64 * 64 / parts, abs=64)
    assert with_them.resident > without.resident
