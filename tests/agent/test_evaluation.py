"""A rank that measures: what it leaves, and how it ends when somebody wants it to."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.jobs.specs import evaluation_spec
from understudy.agent import evaluation
from understudy.agent.heartbeat import HeartbeatWriter
from understudy.agent.surroundings import Surroundings
from understudy.errors import InputError, Stopped
from understudy.jobs.payload import Evaluation
from understudy.jobs.specification import JobSpec

Progress = Callable[[float, float, str], None]


def evaluate(spec: JobSpec) -> None:
    assert isinstance(spec.payload, Evaluation)
    evaluation.evaluate(spec, spec.payload, Surroundings(spec, HeartbeatWriter(spec, 0)))


@pytest.fixture
def spec(tmp_path: Path) -> JobSpec:
    return evaluation_spec(tmp_path)


def measuring(monkeypatch: pytest.MonkeyPatch, batch: Callable[[int], None] = lambda _: None) -> list[tuple[Any, ...]]:
    """Measuring three batches, without models: with what it was asked."""
    asked: list[tuple[Any, ...]] = []

    def measure(*arguments: Any) -> None:
        asked.append(arguments)
        progress: Progress = arguments[6]
        for number in range(1, 4):
            batch(number)
            progress(number, 3, "batches")
        (arguments[4] / "measures.json").touch()

    monkeypatch.setattr(evaluation, "measure", measure)
    return asked


def test_all_models_are_measured_on_the_jobs_device(monkeypatch: pytest.MonkeyPatch, spec: JobSpec) -> None:
    asked = measuring(monkeypatch)
    evaluate(spec)
    [(models, digests, examples, recipe, output, device, _, records, known)] = asked
    assert isinstance(spec.payload, Evaluation)
    assert {role: str(path) for role, path in models.items()} == spec.payload.models
    assert (digests, str(examples), recipe) == (spec.payload.digests, spec.payload.examples, spec.payload.recipe)
    assert (output, device, records, known) == (spec.output, "cpu", None, {})
    assert '"step": 1, "steps": 3, "unit": "batches"' in spec.metrics.read_text()


def test_results_that_are_known_are_read_from_their_objects(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = measuring(monkeypatch)
    evaluate(evaluation_spec(tmp_path, known={"teacher": "/store/objects/aa/aabb"}))
    assert asked[0][-1] == {"teacher": Path("/store/objects/aa/aabb/results.npz")}


def test_what_an_attempt_before_left_is_gone(monkeypatch: pytest.MonkeyPatch, spec: JobSpec) -> None:
    measuring(monkeypatch)
    spec.output.mkdir(parents=True)
    (spec.output / "half").touch()
    evaluate(spec)
    assert [path.name for path in spec.output.iterdir()] == ["measures.json"]


def test_a_stop_ends_it_after_a_batch(monkeypatch: pytest.MonkeyPatch, spec: JobSpec) -> None:
    begun: list[int] = []

    def batch(number: int) -> None:
        begun.append(number)
        if number == 2:
            spec.stop_file.touch()

    measuring(monkeypatch, batch)
    with pytest.raises(Stopped, match="measuring was stopped"):
        evaluate(spec)
    assert begun == [1, 2]
    assert not (spec.output / "measures.json").exists()


def test_a_gpu_that_is_not_there_is_said_before_anything_is_loaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = measuring(monkeypatch)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    spec = replace(evaluation_spec(tmp_path), device="cuda")
    with pytest.raises(InputError, match=r"^resources\.evaluate\.device: cuda is asked for"):
        evaluate(spec)
    assert not asked
