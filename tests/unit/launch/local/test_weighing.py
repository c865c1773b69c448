"""The weights of trainings, before their jobs begin."""

import sys
from pathlib import Path

import pytest

from tests.ranks.train.jobs import GPT, LLAMA, VIT, spec
from understudy.jobs.payload import TrainingJob
from understudy.jobs.specification import JobSpec
from understudy.launch.local import weighing
from understudy.launch.local.weighing import model_weights
from understudy.models.build import build_model
from understudy.models.describe import describe
from understudy.models.facts import WEIGHTS, read_facts
from understudy.plan.lower_bounds import Held
from understudy.recipe import FactoryModel
from understudy.store import Run


def work_of(job: JobSpec) -> TrainingJob:
    assert isinstance(job.payload, TrainingJob)
    Path(job.logs).mkdir(parents=True, exist_ok=True)
    return job.payload


def saved(folder: Path, size: int) -> str:
    folder.mkdir()
    (folder / WEIGHTS).write_bytes(bytes(size))
    return str(folder)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Without a driver, and so without a warm process."""
    return Run(tmp_path / "run")


def test_an_architecture_is_built_without_memory_by_a_process_of_its_own(
    tmp_path: Path, run: Run, text_examples: Path
) -> None:
    job = spec(tmp_path / "job", text_examples, GPT, teacher=saved(tmp_path / "teacher", 77))
    work = work_of(job)
    model = build_model(describe(work.model, read_facts(text_examples), "teacher.model"))
    real = sum(parameter.nbytes for parameter in model.parameters())
    assert model_weights(run, job, work) == Held(real, 77)
    assert not (Path(job.folder) / "weights.json").exists()
    assert (Path(job.logs) / "teacher.log").read_text() == ""


def test_the_weighing_process_gives_the_size(
    tmp_path: Path, text_examples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this one, which has torch already."""
    monkeypatch.setattr(weighing, "die_with_parent", lambda: None)
    for model, code in ((LLAMA, 0), ({"type": "llama", "config": {"hidden_size": 7}}, 1), (VIT, 1)):
        job = spec(tmp_path / f"{code}-{model['type']}", text_examples, model)
        monkeypatch.setattr(sys, "argv", ["weighing", str(job.write())])
        assert weighing.main() == code
        assert (Path(job.folder) / "weights.json").exists() is (code == 0)


def test_files_and_code_of_one_s_own_take_no_process(
    tmp_path: Path, run: Run, text_examples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weighing, "_built_size", lambda *_: pytest.fail("a process was asked"))
    fetched = spec(tmp_path / "fetched", text_examples, GPT, initial=saved(tmp_path / "initial", 33))
    assert model_weights(run, fetched, work_of(fetched)) == Held(33, 0)
    job = spec(tmp_path / "own", text_examples, {"factory": "mine:model"})
    assert isinstance(work_of(job).model, FactoryModel)
    assert model_weights(run, job, work_of(job)) == Held(0, 0)


def test_the_file_of_a_process_that_ends_early_is_no_weight(
    tmp_path: Path, run: Run, text_examples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job will report the fault; an earlier answer does not count."""
    monkeypatch.setattr(weighing.sys, "executable", "/bin/false")
    job = spec(tmp_path / "job", text_examples, GPT)
    (Path(job.folder) / "weights.json").write_text("123")
    assert model_weights(run, job, work_of(job)) == Held(0, 0)
