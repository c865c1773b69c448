import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR

from understudy.models.parts import local_tensor
from understudy.recipe import Optimizer, Schedule
from understudy.train.optimizers import build_optimizer, clip, learning_rate, set_learning_rate

ADAMW = {
    "name": "adamw",
    "learning_rate": 0.1,
    "weight_decay": 0.5,
    "beta1": 0.8,
    "beta2": 0.9,
    "momentum": 0.7,
}
SGD = {**ADAMW, "name": "sgd"}
unhurried = settings(deadline=None)


@st.composite
def schedules(draw: st.DrawFn) -> tuple[int, float, dict[str, Any]]:
    """Steps, peak, schedule."""
    steps = draw(st.integers(1, 300))
    decay = draw(st.sampled_from(["cosine", "linear", "constant"]))
    schedule = {"warmup": draw(st.integers(0, steps - 1)), "decay": decay, "final": draw(st.floats(0, 1))}
    return steps, draw(st.floats(1e-6, 10)), schedule


def rates(steps: int, peak: float, schedule: dict[str, Any]) -> list[float]:
    return [learning_rate(step, steps, peak, Schedule(**schedule)) for step in range(steps)]


def test_a_warm_up_may_be_a_share_of_all_steps() -> None:
    assert rates(40, 1.0, {"warmup": 0.25}) == rates(40, 1.0, {"warmup": 10})
    assert rates(7, 1.0, {"warmup": 0.01}) == rates(7, 1.0, {"warmup": 0})


@unhurried
@given(schedules())
def test_the_rate_rises_to_its_peak_and_never_rises_again(case: tuple[int, float, dict[str, Any]]) -> None:
    actual, warmup = rates(*case), case[2]["warmup"]
    assert all(before < after for before, after in pairwise(actual[:warmup]))
    assert all(before >= after - 1e-12 for before, after in pairwise(actual[warmup:]))
    assert max(actual) == pytest.approx(case[1])
    assert actual[warmup] == pytest.approx(case[1])


@unhurried
@given(schedules())
def test_the_rate_stays_between_the_final_one_and_the_peak(case: tuple[int, float, dict[str, Any]]) -> None:
    _, peak, schedule = case
    actual = rates(*case)
    assert all(0 < rate <= peak * (1 + 1e-12) for rate in actual[: schedule["warmup"] + 1])
    assert all(rate >= schedule["final"] * peak * (1 - 1e-12) for rate in actual[schedule["warmup"] :])


@pytest.mark.parametrize("final", [0.0, 0.1])
@pytest.mark.parametrize("decay", ["cosine", "linear"])
def test_the_decay_is_torchs(decay: str, final: float) -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.3)
    reference: Any = (
        CosineAnnealingLR(optimizer, T_max=40, eta_min=0.3 * final)
        if decay == "cosine"
        else LinearLR(optimizer, start_factor=1, end_factor=final, total_iters=40)
    )
    expected = []
    for _ in range(40):
        expected.append(reference.get_last_lr()[0])
        optimizer.step()
        reference.step()
    actual = rates(50, 0.3, {"warmup": 10, "decay": decay, "final": final})
    np.testing.assert_allclose(actual[10:], expected, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(actual[:10], 0.3 * np.arange(1, 11) / 10)


def test_rates_by_hand() -> None:
    cosine = {"warmup": 2, "decay": "cosine", "final": 0.2}
    expected = [0.5, 1, 1, 0.2 + 0.8 * 0.5 * (1 + math.cos(math.pi / 4)), 0.6, 0.2 + 0.8 * 0.5 * (1 - math.sqrt(0.5))]
    assert rates(6, 1.0, cosine) == pytest.approx(expected)
    assert rates(4, 2.0, {"warmup": 0, "decay": "linear", "final": 0.5}) == pytest.approx([2, 1.75, 1.5, 1.25])
    assert rates(3, 2.0, {"warmup": 0, "decay": "constant", "final": 0.5}) == [2, 2, 2]


class Net(nn.Module):
    """A matrix under two names, a norm, a bias, and a part that does not learn."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 3)
        self.norm = nn.LayerNorm(3)
        self.head = nn.Linear(3, 5)
        self.head.weight = self.table.weight
        self.frozen = nn.Linear(3, 3).requires_grad_(requires_grad=False)


@pytest.mark.parametrize("settings", [ADAMW, SGD], ids=["adamw", "sgd"])
def test_matrices_decay_and_vectors_do_not(settings: dict[str, Any]) -> None:
    net = Net()
    matrices, vectors = build_optimizer(list((net).parameters()), Optimizer(**settings)).param_groups
    assert (matrices["weight_decay"], vectors["weight_decay"]) == (0.5, 0.0)
    assert [id(parameter) for parameter in matrices["params"]] == [id(net.table.weight)]
    assert {id(p) for p in vectors["params"]} == {id(net.norm.weight), id(net.norm.bias), id(net.head.bias)}
    assert matrices["lr"] == vectors["lr"] == 0.1


def test_a_model_without_vectors_has_one_group() -> None:
    assert len(build_optimizer(list((nn.Linear(3, 5, bias=False)).parameters()), Optimizer(**ADAMW)).param_groups) == 1


def steps_of(settings: dict[str, Any], start: Any, gradients: Any) -> list[Any]:
    """The weights of a matrix after each step."""
    net = nn.Linear(3, 2, bias=False)
    net.weight.data = torch.from_numpy(start.copy()).float()
    optimizer, values = build_optimizer(list((net).parameters()), Optimizer(**settings)), []
    for step, gradient in enumerate(gradients):
        set_learning_rate(optimizer, 0.1 / (step + 1))
        net.weight.grad = torch.from_numpy(gradient.copy()).float()
        optimizer.step()
        values.append(net.weight.detach().double().numpy().copy())
    return values


@pytest.fixture
def run() -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    return random.normal(size=(2, 3)), random.normal(size=(5, 2, 3))


def test_adamw_is_the_papers(run: tuple[Any, Any]) -> None:
    """Loshchilov & Hutter 2019, algorithm 2, with the decay scaled by the learning rate."""
    weights, gradients = run
    actual = steps_of(ADAMW, weights, gradients)
    first = second = np.zeros_like(weights)
    for step, gradient in enumerate(gradients):
        rate = 0.1 / (step + 1)
        weights = weights - rate * 0.5 * weights
        first, second = 0.8 * first + 0.2 * gradient, 0.9 * second + 0.1 * gradient**2
        corrected = first / (1 - 0.8 ** (step + 1)), second / (1 - 0.9 ** (step + 1))
        weights = weights - rate * corrected[0] / (np.sqrt(corrected[1]) + 1e-8)
        np.testing.assert_allclose(actual[step], weights, rtol=1e-5, atol=1e-6)


def test_sgd_has_momentum_and_adds_the_decay_to_the_gradient(run: tuple[Any, Any]) -> None:
    weights, gradients = run
    actual = steps_of(SGD, weights, gradients)
    velocity = np.zeros_like(weights)
    for step, gradient in enumerate(gradients):
        velocity = 0.7 * velocity + gradient + 0.5 * weights
        weights = weights - 0.1 / (step + 1) * velocity
        np.testing.assert_allclose(actual[step], weights, rtol=1e-5, atol=1e-6)


def with_gradients(*values: float) -> nn.Module:
    net = nn.Linear(len(values), 1, bias=False)
    net.weight.grad = torch.tensor([values], dtype=torch.float32)
    return net


@pytest.mark.parametrize(("limit", "expected"), [(10.0, [3, 4]), (5.0, [3, 4]), (1.0, [0.6, 0.8]), (None, [3, 4])])
def test_gradients_are_scaled_to_the_limit_and_their_norm_is_told(limit: float | None, expected: list[float]) -> None:
    net = with_gradients(3, 4)
    assert clip(list(net.parameters()), limit).item() == pytest.approx(5)
    assert net.weight.grad is not None
    np.testing.assert_allclose(net.weight.grad[0], expected, rtol=1e-4)


def test_without_gradients_there_is_nothing_to_scale() -> None:
    assert clip(list(nn.Linear(2, 1).parameters()), 1.0).item() == 0


def steps_of_shards(whose: str) -> list[Any]:
    """Weights and state of a rank after two steps of torch's AdamW, or of ours, with gradients scaled by each."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    dist.init_process_group("gloo")
    try:
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        torch.manual_seed(0)
        tensors = [torch.randn(5, 3), torch.randn(4)]
        weights = [nn.Parameter(distribute_tensor(tensor, mesh, [Shard(0)])) for tensor in tensors]
        settings = Optimizer(**{**ADAMW, "name": "adamw"})
        theirs = {"lr": 0.1, "betas": (0.8, 0.9), "fused": True}
        groups = [
            {"params": [weight], "weight_decay": decay} for weight, decay in zip(weights, (0.5, 0.0), strict=True)
        ]
        optimizer = build_optimizer(weights, settings) if whose == "ours" else torch.optim.AdamW(groups, **theirs)
        for _ in range(2):
            for weight, tensor in zip(weights, tensors, strict=True):
                weight.grad = distribute_tensor(tensor.sin(), mesh, [Shard(0)])
            (clip if whose == "ours" else nn.utils.clip_grad_norm_)(weights, 0.5)
            optimizer.step()
        return [
            local_tensor(value).tolist()
            for weight in weights
            for value in (weight.detach(), *optimizer.state[weight].values())
        ]
    finally:
        dist.destroy_process_group()


def test_shards_move_as_torchs_own_adamw_moves_them(ranks: Any) -> None:
    """To the bit: norm, scaling, step and state."""
    assert ranks.run(2, steps_of_shards, "ours") == ranks.run(2, steps_of_shards, "torch's")


def test_a_gradient_that_is_no_number_is_told_as_such() -> None:
    assert not clip(list(with_gradients(3, float("nan")).parameters()), 1.0).isfinite()
    assert not clip(list(with_gradients(3, float("inf")).parameters()), None).isfinite()


@pytest.mark.parametrize("settings", [ADAMW, SGD])
def test_the_first_steps_are_those_of_an_optimiser_that_makes_its_state_late(settings: dict[str, Any]) -> None:
    reference = {
        "adamw": lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=0.5, betas=(0.8, 0.9)),
        "sgd": lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.5, momentum=0.7),
    }[settings["name"]]
    torch.manual_seed(0)
    ours = nn.Linear(3, 2, bias=False)
    theirs = nn.Linear(3, 2, bias=False)
    theirs.load_state_dict(ours.state_dict())
    optimizers = build_optimizer(list((ours).parameters()), Optimizer(**settings)), reference(theirs.parameters())
    torch.testing.assert_close(ours.weight, theirs.weight, rtol=0, atol=0)
    for step in range(4):
        for model, optimizer in zip((ours, theirs), optimizers, strict=True):
            model.weight.grad = torch.sin(torch.arange(6.0).view(2, 3) + step)
            optimizer.step()
    torch.testing.assert_close(ours.weight, theirs.weight)


def test_a_parameter_without_a_gradient_has_state_and_does_not_move() -> None:
    model = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    before = model[1].weight.clone()
    optimizer = build_optimizer(list((model).parameters()), Optimizer(**ADAMW))
    model[0](torch.ones(1, 2)).sum().backward()
    optimizer.step()
    assert set(optimizer.state) == set(model.parameters())
    torch.testing.assert_close(model[1].weight, before, rtol=0, atol=0)
