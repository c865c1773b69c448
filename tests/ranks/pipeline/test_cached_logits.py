"""Students that read a teacher's cached logits: shared, written on after a kill, and of a teacher that is gone."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ranks.faults.stage import Stage, ended, wait
from tests.ranks.pipeline.test_learners import learner, model
from understudy.store.files import read_json


def recipe(width: int = 8, pause: float = 0.0, processes: int = 1, **logits: Any) -> dict[str, Any]:
    """Two teachers, of which one has cached logits, and a student of them."""
    wide = {"model": {**model(32), "kwargs": {"width": 32, "pause": pause}}, "train": {"steps": 2}}
    return {
        "name": "cached",
        "task": "image-classification",
        "data": {"source": {"type": "digits"}, "image": {"size": 8, "channels": 1}},
        "teachers": {"wide": {**wide, "logits": logits or {"type": "top_k", "k": 4}}, "narrow": learner(16)},
        "student": learner(width, "wide", "narrow"),
        "evaluate": {"batch_size": 32, "latency": {"repeats": 1}},
        "gate": {"margin": 0.99},
        "resources": {
            "teacher": {"device": "cpu"},
            "distill": {"device": "cpu"},
            "evaluate": {"device": "cpu", "processes": processes},
        },
    }


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path / "home")
    yield stage
    stage.clear()


def digests(stage: Stage, values: dict[str, Any], last: str = "distill") -> dict[str, str]:
    code, out, error = ended(stage.steps(values, last=last))
    assert code == 0, error
    return dict(line.split() for line in out.splitlines())


def test_two_students_share_one_object_and_another_method_has_its_own(stage: Stage) -> None:
    first, second = digests(stage, recipe(8)), digests(stage, recipe(12))
    assert first["logits-wide"] == second["logits-wide"]
    assert first["distill"] != second["distill"]
    described = stage.store / "objects" / first["logits-wide"][:2] / first["logits-wide"] / "logits.json"
    assert read_json(described)["facts"]["teacher"] == first["wide"]
    sampled = digests(stage, recipe(type="sampled", draws=9), last="logits-wide")["logits-wide"]
    assert len({path.parent.name for path in (stage.store / "objects").rglob("logits.json")}) == 2
    assert sampled != first["logits-wide"]


def parts(stage: Stage) -> list[str]:
    """The parts that a job has written; os.walk passes over folders that are renamed meanwhile."""
    files = [name for _, _, names in os.walk(stage.home / "store" / "work") for name in names]
    return [name for name in files if name.startswith("part-") and name.endswith(".npy")]


def test_a_killed_job_goes_on_and_writes_the_same_bytes(tmp_path: Path, stage: Stage) -> None:
    values = recipe(pause=0.15)
    begun = stage.steps(values, last="logits-wide")
    try:
        wait(lambda: len(parts(stage)) > 1, 60)
    finally:
        for process in stage.processes():
            os.kill(process.pid, signal.SIGKILL)
        begun.communicate(timeout=30)
    assert 1 < len(parts(stage)) < 5
    after = digests(stage, values, last="logits-wide")["logits-wide"]
    other = Stage(tmp_path / "other")
    try:
        assert digests(other, recipe(pause=0.15, processes=2), last="logits-wide")["logits-wide"] == after
    finally:
        other.clear()
