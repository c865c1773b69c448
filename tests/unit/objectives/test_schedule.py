"""Weights that follow a schedule: their values, and the sums of objectives with them."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.unit.objectives.closed_forms import section
from tests.unit.plan.test_depth import llama, planned
from understudy.models.outputs import Outputs
from understudy.objectives.batch import Batch
from understudy.objectives.fused import compiled
from understudy.objectives.objective import Context, ModuleObjective, PositionObjective, objective, weighted
from understudy.objectives.schedule import StepWeights, weight_at
from understudy.plan.trace import traces
from understudy.recipe import Degrees, ObjectiveSection, Train
from understudy.recipe.objectives import WeightSchedule

CPU = torch.device("cpu")
DOWN = {"start": 1.0, "end": 0.0, "steps": 4}


def schedule(**keys: Any) -> WeightSchedule:
    return WeightSchedule.model_validate({"start": 1.0, "end": 0.2, **keys})


@pytest.mark.parametrize(
    ("keys", "step", "expected"),
    [
        ({}, 0, 1.0),
        ({}, 5, 0.6),
        ({}, 10, 0.2),
        ({"steps": 5}, 1, 0.84),
        ({"steps": 5}, 5, 0.2),
        ({"steps": 5}, 9, 0.2),
        ({"steps": 40}, 10, 0.8),
        ({"form": "cosine"}, 0, 1.0),
        ({"form": "cosine"}, 5, 0.6),
        ({"form": "cosine"}, 2, 0.2 + 0.4 * (1 + math.cos(math.pi / 5))),
        ({"start": 0.0, "end": 3.0}, 1, 0.3),
    ],
    ids=str,
)
def test_a_weight_goes_from_start_to_end(keys: dict[str, Any], step: int, expected: float) -> None:
    """Over the training's ten steps, unless the schedule has its own."""
    assert weight_at(schedule(**keys), step, 10) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("form", ["linear", "cosine"])
def test_a_weight_ends_at_its_end_and_not_near_it(form: str) -> None:
    for start, end in ((1.0, 0.2), (1.0, 0.0), (0.1, 0.7)):
        chosen = schedule(start=start, end=end, form=form, steps=3)
        assert [weight_at(chosen, step, 9) for step in (0, 3, 8)] == [start, end, end]


def test_a_number_is_the_weight_at_every_step() -> None:
    weights = StepWeights([0.3, schedule()])
    weights.begin_step(7, 10, CPU)
    assert weights.values == [0.3, pytest.approx(0.44)]


def example() -> tuple[Tensor, Tensor, Batch]:
    random = torch.Generator().manual_seed(0)
    student, teacher = (torch.randn(6, 5, generator=random, dtype=torch.double) for _ in "ab")
    labels = torch.tensor([0, 1, -100, 3, 4, 0])
    return student.requires_grad_(), teacher, Batch(labels, labels)


def evaluated(sections: list[ObjectiveSection], step: int, teacher: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Loss and gradient at a step of a training of eight."""
    student, default, batch = example()
    built = objective(sections, Context(Train(steps=8), seed=0))
    built.begin_step(step, 8, CPU)
    loss = built(Outputs(student), (Outputs(default if teacher is None else teacher),), batch)
    return loss.detach(), torch.autograd.grad(loss, student)[0]


@pytest.mark.parametrize("step", [0, 1, 3, 4, 7])
def test_at_each_step_the_loss_is_that_of_its_weights_as_numbers(step: int) -> None:
    """Also at a step after a later one, where a training resumes or goes back."""
    up = {"start": 0.25, "end": 2.0}
    scheduled = [section("labels", weight=up), section("logits", weight=DOWN), section("jsd", weight=0.5)]
    now = [0.25 + step / 8 * 1.75, max(1 - step / 4, 0), 0.5]
    numbers = [chosen.model_copy(update={"weight": weight}) for chosen, weight in zip(scheduled, now, strict=True)]
    for ours, theirs in zip(evaluated(scheduled, step), evaluated(numbers, 0), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def infinite() -> Tensor:
    teacher = example()[1].clone()
    teacher[:, 0] = -math.inf
    return teacher


def test_an_infinite_loss_is_left_out_where_its_weight_is_0() -> None:
    sections = [section("labels"), section("reverse_kl", weight=DOWN)]
    for ours, labels in zip(evaluated(sections, 4, infinite()), evaluated(sections[:1], 0), strict=True):
        torch.testing.assert_close(ours, labels)
    assert evaluated(sections, 3, infinite())[0] == math.inf


def summed(scheduled: float | WeightSchedule, step: int, teacher: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """Beside an objective without a closed form, which has a parameter: loss, and both gradients."""
    student, _, batch = example()
    layer = nn.Linear(5, 1, bias=False).double()
    nn.init.ones_(layer.weight)

    def loss_of(outputs: Outputs, teachers: Any, batch: Batch, layer: nn.Module) -> Tensor:
        del teachers
        loss: Tensor = layer(outputs.logits)[batch.has_target].square().sum()
        return loss

    reverse = objective([section("reverse_kl")], Context(Train(steps=8), seed=0))
    built = weighted(
        [(schedule(start=0.0, end=1.0, steps=4), ModuleObjective(loss_of, layer=layer)), (scheduled, reverse)]
    )
    assert not isinstance(built, PositionObjective)
    built.begin_step(step, 8, CPU)
    loss = built(Outputs(student), (Outputs(teacher),), batch)
    loss.backward()
    assert student.grad is not None
    return loss.detach(), student.grad, layer.weight.grad


def test_beside_an_objective_with_parameters_it_is_left_out_too() -> None:
    down = schedule(**DOWN)
    loss, gradient, of_weight = summed(down, 4, infinite())
    expected, alone, _ = summed(0.0, 4, infinite())
    assert loss == expected
    assert gradient.equal(alone)
    assert of_weight is not None
    assert summed(down, 3, example()[1])[0] == pytest.approx(
        0.75 * summed(0.0, 4, infinite())[0].item() + 0.25 * evaluated([section("reverse_kl")], 0)[0].item(), rel=1e-12
    )


def test_parameters_have_a_gradient_where_the_weight_is_0() -> None:
    """Processes wait for each other's."""
    _, _, of_weight = summed(1.0, 0, example()[1])
    assert of_weight is not None
    assert not of_weight.any()


def test_steps_do_not_compile_a_formula_again() -> None:
    torch.compiler.reset()
    student, teacher, batch = example()
    built = objective([section("labels"), section("logits", weight=DOWN)], Context(Train(steps=8), seed=0))
    assert isinstance(built, PositionObjective)
    student, graphs = student.detach(), []

    def backend(graph: torch.fx.GraphModule, inputs: object) -> Any:
        del inputs
        graphs.append(graph)
        return graph.forward

    pass_ = torch.compile(compiled.__wrapped__(built.losses, "eager"), backend=backend)
    for step in range(6):
        built.begin_step(step, 8, CPU)
        gradient = torch.empty_like(student)
        loss = pass_(student, (teacher,), batch, gradient, 1.0)
        expected = built(Outputs(student), (Outputs(teacher),), batch)
        torch.testing.assert_close(loss, expected)
    assert len(graphs) == 1


@pytest.mark.parametrize("kind", ["logits", "hidden_states"])
def test_the_plan_counts_them_as_numbers(kind: str) -> None:
    job = planned(llama(2), llama(3))
    estimates = []
    for weight in (0.5, schedule()):
        objectives = (section("labels"), section(kind, weight=weight))
        chosen = replace(job, settings=replace(job.settings, objectives=objectives))
        estimates.append(traces(chosen, Degrees(), "cpu", torch.float32)[0])
    number, scheduled = estimates
    assert (number.state, number.flops, number.traffic) == (scheduled.state, scheduled.flops, scheduled.traffic)
    assert scheduled.peak.bytes == pytest.approx(number.peak.bytes, rel=0.1)
