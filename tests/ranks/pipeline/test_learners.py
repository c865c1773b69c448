"""Schemes of the literature as recipes, each from its data to a verdict, with tiny models."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ranks.faults.stage import Stage, ended
from understudy.graph import nodes
from understudy.recipe.file import from_values
from understudy.store.files import read_json

LABELS = {"type": "labels", "weight": 0.3}


def model(width: int) -> dict[str, Any]:
    return {"factory": "slow_model:build", "kwargs": {"width": width, "pause": 0.0}}


def learner(width: int, *teachers: str, steps: int = 3) -> dict[str, Any]:
    """A model and its training; by teachers, if any are named."""
    logits = [{"type": "logits", "weight": 0.7, "teacher": teacher} for teacher in teachers]
    return {"model": model(width), "train": {"steps": steps}, **({"distill": [LABELS, *logits]} if logits else {})}


def stages(*teachers: str) -> dict[str, Any]:
    """A student with a training for each teacher, one after the other, the first on data of its own."""
    trainings = [{"train": {"steps": 3}, "distill": [LABELS, {"type": "logits", "teacher": name}]} for name in teachers]
    return {"model": model(8), "stages": [{**trainings[0], "data": "more"}, *trainings[1:]]}


SCHEMES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "two teachers, and their mean": ({"wide": learner(32), "narrow": learner(16)}, learner(8)),
    "a teacher assistant (Mirzadeh et al. 2020)": (
        {"large": learner(32), "middle": learner(16, "large")},
        learner(8, "middle"),
    ),
    "born-again networks (Furlanello et al. 2018)": (
        {"first": learner(8), "second": learner(8, "first"), "third": learner(8, "second")},
        learner(8, "third"),
    ),
    "a student from layers of its teacher (Sanh et al. 2019)": (
        {"large": learner(8)},
        {**learner(8, "large"), "start": {"layers": [1, 1, 3]}},
    ),
    "two stages on two data sets": ({"wide": learner(32), "narrow": learner(16)}, stages("wide", "narrow")),
}


def recipe(teachers: dict[str, Any], student: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": "schemes",
        "task": "image-classification",
        "data": {"source": {"type": "digits"}, "image": {"size": 8, "channels": 1}},
        "data_sets": {"more": {"source": {"type": "digits"}}} if "stages" in student else {},
        "teachers": teachers,
        "student": student,
        "evaluate": {"latency": {"repeats": 1}},
        "gate": {"margin": 0.99},
        "resources": {"teacher": {"device": "cpu"}, "distill": {"device": "cpu"}},
    }


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path / "home")
    yield stage
    stage.clear()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_scheme_is_a_recipe(stage: Stage, scheme: str) -> None:
    graph_recipe = recipe(*SCHEMES[scheme])
    code, out, error = ended(stage.steps(graph_recipe, last="gate"))
    assert code == 0, error
    digests = dict(line.split() for line in out.splitlines())
    assert digests.keys() == {node.name for node in nodes(from_values(graph_recipe, (), "r"))} - {"register"}
    verdict = read_json(stage.store / "objects" / digests["gate"][:2] / digests["gate"] / "verdict.json")
    assert verdict["reference"] in graph_recipe["teachers"]
    assert {rule["rule"] for rule in verdict["rules"]} >= {
        "measured",
        "quality-against-teacher",
        "quality-against-control",
    }
