import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.jobs.specs import with_resources
from understudy.errors import UnderstudyError
from understudy.jobs.outcome import Outcome
from understudy.jobs.specification import JobSpec


def test_a_specification_comes_back_as_it_was_written(job: JobSpec) -> None:
    assert job.write() == job.path
    assert JobSpec.read(job.path) == job


def test_world_size_is_nodes_times_processes(job: JobSpec) -> None:
    assert with_resources(job, nodes=3, processes=4).world_size == 12


def test_all_files_of_a_job_lie_in_its_folder(job: JobSpec) -> None:
    paths = [job.path, job.metrics, job.stop_file, job.output, job.outcome(0), job.outcome(-1)]
    assert {path.parent for path in paths} == {Path(job.folder)}
    assert len(set(paths)) == len(paths)


def test_a_job_is_over_when_its_folder_is_empty_or_stale(job: JobSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    job.write()
    assert not job.is_over
    job.path.unlink()  # a pod that has the folder as a mount keeps the mount
    assert job.is_over

    def fails(code: int) -> None:
        def stat(self: Path, **_: object) -> None:
            raise OSError(code, "")

        monkeypatch.setattr(Path, "stat", stat)

    fails(errno.ESTALE)
    assert job.is_over
    fails(errno.EIO)
    with pytest.raises(OSError, match=str(errno.EIO)):
        assert job.is_over


def test_an_outcome_comes_back_as_it_was_written(tmp_path: Path) -> None:
    outcome = Outcome(2, "recipe.yaml: größer als erlaubt")
    outcome.write(tmp_path / "outcome.json")
    assert Outcome.read(tmp_path / "outcome.json") == outcome


def test_a_rank_that_said_nothing_has_no_outcome(tmp_path: Path) -> None:
    assert Outcome.read(tmp_path / "outcome.json") is None


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda values: values.pop("resources"), "resources: Field required"),
        (lambda values: values["payload"]["train"].update(clip_norm=1.0), r"train\.clip_norm: Extra inputs"),
        (lambda values: values.update(role="editor"), "role: Input should be 'teacher', 'distill'"),
    ],
)
def test_a_job_that_another_image_wrote_is_refused_with_its_version(
    job: JobSpec, change: Callable[[dict[str, Any]], Any], field: str
) -> None:
    values = json.loads(job.write().read_text())
    change(values)
    job.path.write_text(json.dumps({**values, "version": "0.1.0+abc"}))
    with pytest.raises(UnderstudyError, match=rf"understudy 0\.1\.0\+abc wrote this job.*{field}.*images of one build"):
        JobSpec.read(job.path)


def test_a_job_that_is_no_json_is_refused(job: JobSpec) -> None:
    job.path.write_text("{")
    with pytest.raises(UnderstudyError, match="understudy of an unknown version wrote this job"):
        JobSpec.read(job.path)
