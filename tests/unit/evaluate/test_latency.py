import pytest
import torch
from torch import nn

from understudy.evaluate import latency as timing
from understudy.evaluate.latency import WARM_UP, latency, rounds


class Noted(nn.Module):
    def __init__(self, name, calls):
        super().__init__()
        self.name, self.calls = name, calls

    def forward(self, inputs):
        self.calls.append(self.name)
        return inputs


def test_models_are_timed_in_turn_and_each_is_the_first_as_often():
    calls, ticks = [], []
    modules = {name: Noted(name, calls) for name in ("teacher", "b", "c")}
    rounds(modules, dict.fromkeys(modules, torch.zeros(2)), 3, lambda: ticks.append(1))
    measured = calls[3 * WARM_UP :]
    assert measured == ["teacher", "b", "c", "b", "c", "teacher", "c", "teacher", "b"]
    assert len(ticks) == WARM_UP + 3


def test_each_model_is_timed_on_its_own_inputs():
    shapes = {"teacher": [], "champion": []}
    modules = {role: nn.Identity() for role in shapes}
    for role, module in modules.items():
        module.register_forward_hook(lambda _, inputs, __, role=role: shapes[role].append(tuple(inputs[0].shape)))
    rounds(modules, {"teacher": torch.zeros(2, 4), "champion": torch.zeros(2, 8)}, 1, lambda: None)
    assert (set(shapes["teacher"]), set(shapes["champion"])) == ({(2, 4)}, {(2, 8)})


def test_the_summary_is_in_milliseconds_and_inputs_a_second(monkeypatch):
    durations = iter([9.0] * WARM_UP + [0.001, 0.004, 0.002])
    monkeypatch.setattr(timing, "_seconds", lambda module, inputs: next(durations))
    timed = rounds({"teacher": nn.Identity()}, {"teacher": torch.zeros(8, 1)}, 3, lambda: None)["teacher"]
    assert latency(timed, timed, 8) == {
        "batch_size": 8,
        "median_ms": pytest.approx(2),
        "min_ms": pytest.approx(1),
        "p95_ms": pytest.approx(3.8),
        "throughput_per_s": pytest.approx(4000),
        "ratio_to_teacher": pytest.approx(1),
    }


def test_models_are_compared_round_by_round_so_that_a_machine_that_slows_down_does_not_tip_the_scales(monkeypatch):
    student, teacher = nn.Identity(), nn.Flatten()
    warm = [9.0] * WARM_UP
    clocks = {teacher: iter([*warm, 1.0, 1.0, 50.0]), student: iter([*warm, 0.5, 25.0, 25.0])}
    monkeypatch.setattr(timing, "_seconds", lambda module, inputs: next(clocks[module]))
    inputs = dict.fromkeys(("teacher", "student"), torch.zeros(1))
    timed = rounds({"teacher": teacher, "student": student}, inputs, 3, lambda: None)
    assert latency(timed["student"], timed["teacher"], 1)["ratio_to_teacher"] == pytest.approx(0.5)
    assert latency(timed["teacher"], timed["teacher"], 1)["ratio_to_teacher"] == 1
