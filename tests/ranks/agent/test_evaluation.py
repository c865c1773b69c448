"""A rank that measures: its results, and its end when it is stopped."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.ranks.pool import Ranks
from tests.unit.evaluate import small
from tests.unit.jobs.specs import evaluation_spec
from understudy.agent import evaluation
from understudy.agent.heartbeat import HeartbeatWriter
from understudy.agent.surroundings import Surroundings
from understudy.errors import InputError, Stopped
from understudy.evaluate.shares import Share
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
    """Three batches measured without models, with the arguments."""
    calls: list[tuple[Any, ...]] = []

    def measure(*arguments: Any) -> None:
        calls.append(arguments)
        progress: Progress = arguments[6]
        for number in range(1, 4):
            batch(number)
            progress(number, 3, "batches")
        (arguments[4] / "measures.json").touch()

    monkeypatch.setattr(evaluation, "measure", measure)
    return calls


def test_all_models_are_measured_on_the_jobs_device(monkeypatch: pytest.MonkeyPatch, spec: JobSpec) -> None:
    calls = measuring(monkeypatch)
    evaluate(spec)
    [(models, digests, examples, recipe, output, device, _, records, results, share)] = calls
    assert isinstance(spec.payload, Evaluation)
    assert {role: str(path) for role, path in models.items()} == spec.payload.models
    assert (digests, str(examples), recipe) == (spec.payload.digests, spec.payload.examples, spec.payload.recipe)
    assert (output, device, records, results, share) == (spec.output, "cpu", None, {}, Share(0, 1))
    assert '"step": 1, "steps": 3, "unit": "batches"' in spec.metrics.read_text()


def test_results_that_are_known_are_read_from_their_objects(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls = measuring(monkeypatch)
    evaluate(evaluation_spec(tmp_path, known={"teacher": "/store/objects/aa/aabb"}))
    assert calls[0][-2] == {"teacher": Path("/store/objects/aa/aabb/results.npz")}


def test_what_an_attempt_before_left_is_gone(monkeypatch: pytest.MonkeyPatch, spec: JobSpec) -> None:
    measuring(monkeypatch)
    spec.output.mkdir(parents=True)
    (spec.output / "half").touch()
    evaluate(spec)
    assert [path.name for path in spec.output.iterdir()] == ["measures.json"]


def test_a_stop_ends_it_after_a_batch(monkeypatch: pytest.MonkeyPatch, spec: JobSpec) -> None:
    batches: list[int] = []

    def batch(number: int) -> None:
        batches.append(number)
        if number == 2:
            spec.stop_file.touch()

    measuring(monkeypatch, batch)
    with pytest.raises(Stopped, match="measuring was stopped"):
        evaluate(spec)
    assert batches == [1, 2]
    assert not (spec.output / "measures.json").exists()


def test_a_gpu_that_is_not_there_is_said_before_anything_is_loaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls = measuring(monkeypatch)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    spec = replace(evaluation_spec(tmp_path), device="cuda")
    with pytest.raises(InputError, match=r"^resources\.evaluate\.device: cuda is requested"):
        evaluate(spec)
    assert not calls


def evaluate_rank(spec: JobSpec) -> None:
    """The work of one rank of the job."""
    assert isinstance(spec.payload, Evaluation)
    surroundings = Surroundings(spec, HeartbeatWriter(spec, int(os.environ["RANK"])))
    evaluation.evaluate(spec, spec.payload, surroundings)


def measured(
    ranks: Ranks,
    folder: Path,
    processes: int,
    facts: dict[str, Any],
    model: dict[str, Any],
    earlier_results: tuple[str, ...] = (),
    strategy: str = "ddp",
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The measures of a teacher and a student by so many ranks, without their speed, and each model's results."""
    folder.mkdir()
    objects = folder.parent
    spec = evaluation_spec(
        folder,
        examples=str(objects / "examples"),
        models={role: str(objects / role) for role in ("teacher", "student")},
        recipe=small.recipe(facts, model, evaluate={"batch_size": 3, "strategy": strategy, "latency": {"repeats": 1}}),
        known={role: str(objects / f"results of {role}") for role in earlier_results},
    )
    spec = replace(spec, resources=spec.resources.model_copy(update={"processes": processes}))
    ranks.run(processes, evaluate_rank, spec)
    measures = json.loads((spec.output / "measures.json").read_text())
    for of_model in measures["models"].values():
        del of_model["latency"]
    files = {path.name: path for path in spec.output.iterdir()}
    assert files.keys() == {
        "measures.json",
        "per_example.npz",
        *(f"{r}.results.npz" for r in {*MODELS} - {*earlier_results}),
    }
    return measures, {name: path.read_bytes() for name, path in files.items() if name != "measures.json"}


MODELS = ("teacher", "student")
TIED = {**small.LLAMA, "config": {**small.SIZES, "tie_word_embeddings": True, "num_hidden_layers": 3}}
TASKS = pytest.mark.parametrize(("facts", "model"), [(small.TEXT, small.LLAMA), (small.IMAGES, small.VIT)])


@TASKS
def test_several_ranks_measure_what_one_does_to_the_last_bit(
    ranks: Ranks, tmp_path: Path, facts: dict[str, Any], model: dict[str, Any]
) -> None:
    small.examples(tmp_path / "examples", facts)
    for seed, role in enumerate(MODELS):
        small.saved(tmp_path / role, model, facts, seed)
    alone = measured(ranks, tmp_path / "1", 1, facts, model)
    assert measured(ranks, tmp_path / "3", 3, facts, model) == alone
    assert np.isfinite(alone[0]["models"]["student"]["metrics"]["nll"])


@pytest.mark.parametrize(
    ("facts", "model", "strategy", "shards"),
    [
        (small.TEXT, small.LLAMA, "fsdp", 4),
        pytest.param(small.IMAGES, small.VIT, "fsdp", 4, marks=pytest.mark.full),
        pytest.param(small.TEXT, TIED, "hsdp", 2, marks=pytest.mark.full),
    ],
)
def test_models_in_shards_give_the_bits_of_whole_ones(
    ranks: Ranks, tmp_path: Path, facts: dict[str, Any], model: dict[str, Any], strategy: str, shards: int
) -> None:
    """Batches cannot be shared out evenly over 4 ranks: some of them have none in the last round."""
    small.examples(tmp_path / "examples", facts)
    for seed, role in enumerate(MODELS):
        small.saved(tmp_path / role, model, facts, seed)
    alone, files = measured(ranks, tmp_path / "1", 1, facts, model)
    measures, results = measured(ranks, tmp_path / "4", 4, facts, model, strategy=strategy)
    assert (alone["hardware"].pop("processes"), measures["hardware"].pop("processes")) == (1, shards)
    assert (measures, results) == (alone, files)


def test_ranks_with_nothing_to_measure_leave_the_timing_to_the_first(ranks: Ranks, tmp_path: Path) -> None:
    small.examples(tmp_path / "examples", small.TEXT)
    for seed, role in enumerate(MODELS):
        small.saved(tmp_path / role, small.LLAMA, small.TEXT, seed)
    measures, files = measured(ranks, tmp_path / "1", 1, small.TEXT, small.LLAMA)
    for role in MODELS:
        (tmp_path / f"results of {role}").mkdir()
        (tmp_path / f"results of {role}" / "results.npz").write_bytes(files[f"{role}.results.npz"])
    now = measured(ranks, tmp_path / "2", 2, small.TEXT, small.LLAMA, MODELS)
    assert now == (measures, {"per_example.npz": files["per_example.npz"]})
