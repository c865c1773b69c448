from dataclasses import asdict
from pathlib import Path

from understudy.jobs.outcome import Outcome
from understudy.jobs.specification import JobSpec


def test_a_specification_comes_back_as_it_was_written(job: JobSpec) -> None:
    assert job.write() == job.path
    assert JobSpec.read(job.path) == job


def test_world_size_is_nodes_times_processes(job: JobSpec) -> None:
    assert JobSpec(**{**asdict(job), "nodes": 3, "processes": 4}).world_size == 12


def test_all_files_of_a_job_lie_in_its_folder(job: JobSpec) -> None:
    paths = [job.path, job.metrics, job.stop_file, job.output, job.outcome(0), job.outcome(-1)]
    assert {path.parent for path in paths} == {Path(job.folder)}
    assert len(set(paths)) == len(paths)


def test_an_outcome_comes_back_as_it_was_written(tmp_path: Path) -> None:
    outcome = Outcome(2, "recipe.yaml: größer als erlaubt")
    outcome.write(tmp_path / "outcome.json")
    assert Outcome.read(tmp_path / "outcome.json") == outcome


def test_a_rank_that_said_nothing_has_no_outcome(tmp_path: Path) -> None:
    assert Outcome.read(tmp_path / "outcome.json") is None
