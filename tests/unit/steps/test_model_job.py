"""A training step around its job: recording, delivery and facts."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.unit.jobs.specs import job_spec
from understudy.errors import Stopped
from understudy.jobs.payload import TrainingJob
from understudy.launch.local.platform import LocalPlatform
from understudy.models.facts import HISTORY, WEIGHTS
from understudy.recipe import ArchitectureModel
from understudy.steps import model_job
from understudy.steps.step import Work


def test_the_recorder_sees_how_a_training_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    heard: list[type[BaseException]] = []

    @contextmanager
    def recorded(*_: object) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            heard.append(type(error))
            raise

    def stopped(*_: object) -> Path:
        raise Stopped("teacher: stopped at step 3; run again to resume")

    monkeypatch.setattr(LocalPlatform, "prepare", lambda *_: None)
    monkeypatch.setattr(model_job, "resume_resharded", lambda *_: None)
    monkeypatch.setattr(model_job, "_record", recorded)
    monkeypatch.setattr(model_job, "run_job", stopped)
    with pytest.raises(Stopped, match="stopped at step 3"):
        model_job.train(cast(Work, SimpleNamespace(run=None)), job_spec(tmp_path))
    assert heard == [Stopped]


CURVE = [{"step": 2, "validation_loss": 1.0}, {"step": 3}, {"step": 4, "validation_loss": 0.5}]
CURVE += [{"step": 6, "validation_loss": 0.5}]


@pytest.mark.parametrize(
    ("train", "facts"),
    [
        ({"precision": "bf16"}, {}),
        ({"precision": "fp8"}, {"trained_in": "fp8"}),
        ({"steps": 6, "validate_every": 2, "patience": 1, "keep_best": True}, {"weights_of": "step 4"}),
        ({"steps": 8000, "validate_every": 2, "patience": 1}, {"ended_early": "after 6 of 8,000 steps"}),
    ],
)
def test_a_trained_model_says_what_it_is_and_how_large(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, train: dict[str, Any], facts: dict[str, str]
) -> None:
    output, staged = tmp_path / "attempt" / "output", tmp_path / "staged"
    output.mkdir(parents=True)
    staged.mkdir()
    (output / WEIGHTS).write_bytes(b"12345")
    (output / HISTORY).write_text(json.dumps(CURVE))
    monkeypatch.setattr(LocalPlatform, "prepare", lambda *_: None)
    monkeypatch.setattr(model_job, "resume_resharded", lambda *_: None)
    monkeypatch.setattr(model_job, "_record", lambda *_: nullcontext())
    monkeypatch.setattr(model_job, "run_job", lambda *_: output)
    compared: list[tuple[object, ...]] = []
    monkeypatch.setattr(model_job, "check_delivered", lambda *arguments: compared.append(arguments))
    work = SimpleNamespace(run=None, staged=staged, facts={})
    spec = job_spec(tmp_path, train={"steps": 1, **train})
    model_job.train(cast(Work, work), spec)
    assert isinstance(spec.payload, TrainingJob)
    assert isinstance(spec.payload.model, ArchitectureModel)
    assert work.facts == {"model": spec.payload.model.type, "bytes": 5, **facts}
    assert compared == [(staged, spec.payload.model, spec.payload.train, spec.payload.examples, "teacher.model")]
