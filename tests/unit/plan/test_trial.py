"""The trial of models before they are traced, and its errors."""

from dataclasses import replace
from logging import LogRecord
from typing import Any

import pytest
import torch
from torch._subclasses import fake_tensor

from tests.ranks.train.jobs import VIT
from tests.unit.plan.test_choices import IMAGES
from tests.unit.plan.test_depth import llama, planned
from understudy.errors import InputError
from understudy.models.describe import describe
from understudy.plan import trial
from understudy.plan.placeholders import PlaceholderExamples
from understudy.plan.planned import Planned
from understudy.plan.trace import traces
from understudy.recipe import ArchitectureModel, Degrees


def vit(changes: dict[str, Any], **train: Any) -> Planned:
    model = ArchitectureModel(type="vit", config=VIT["config"] | changes)
    return replace(planned(describe(model, IMAGES, "student.model"), **train), examples=PlaceholderExamples(IMAGES, 64))


def test_a_model_that_fails_on_the_data_is_said() -> None:
    with pytest.raises(InputError, match=r"student\.model: the model fails on the first example, .* \(16 x 16\)"):
        traces(vit({"patch_size": 16}), Degrees(), "cpu", torch.float32)


def test_layers_that_a_plan_splits_wrongly_are_said_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[LogRecord] = []
    monkeypatch.setattr(fake_tensor.log, "handle", logged.append)
    job = vit({}, tensor_plan={"vit.layers.*.mlp.fc1": "colwise"})
    with pytest.raises(InputError, match=r"student\.model: the model fails on the first example"):
        traces(job, Degrees(tp=2), "cpu", torch.float32)
    assert logged == []


@pytest.mark.parametrize("degrees", [Degrees(), Degrees(pp=2), Degrees(tp=2)])
def test_names_of_nothing_are_said(degrees: Degrees) -> None:
    job = planned(llama(2), optimizer={"no_decay": ["*.bais"]})
    with pytest.raises(InputError, match=r"student\.train\.optimizer\.no_decay: \*\.bais names no parameter"):
        traces(job, degrees, "cpu", torch.float32)


def test_the_teacher_is_tried_too() -> None:
    teacher = vit({"patch_size": 16}).model
    job = replace(vit({}), teachers={"teacher": teacher})
    with pytest.raises(InputError, match=r"teacher\.model: the model fails on the first example"):
        traces(job, Degrees(), "cpu", torch.float32)


def test_each_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    paths: list[str] = []
    monkeypatch.setattr(trial, "_shapes", {})
    monkeypatch.setattr(trial, "check_shapes", lambda *args: paths.append(args[4]))
    job = planned(llama(2), llama(1))
    for mesh_degrees in (Degrees(), Degrees(dp_shard=2), Degrees(tp=2), Degrees(tp=2, dp_shard=2), Degrees(pp=2, tp=2)):
        traces(job, mesh_degrees, "cpu", torch.float32)
    assert paths == ["student.model", "teacher.model", "student.model"]
