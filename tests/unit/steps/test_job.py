"""How a job's end becomes the step's."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.unit.jobs.specs import job_spec
from understudy.errors import FAILED, STOPPED, InputError, Stopped, UnderstudyError
from understudy.jobs.outcome import Outcome
from understudy.launch.local.launcher import LocalLauncher
from understudy.steps.job import run_job
from understudy.steps.step import Work


@pytest.fixture
def work(tmp_path: Path) -> Work:
    """A step whose job ends as the test says."""
    return cast(
        Work,
        SimpleNamespace(
            step="teacher",
            run=SimpleNamespace(id="digits-1"),
            recipe=SimpleNamespace(name="digits", task="image-classification"),
            lease=SimpleNamespace(folder=tmp_path / "key" / "lease"),
            progress=lambda *_, **__: None,
        ),
    )


@pytest.mark.parametrize(
    ("outcome", "raised"),
    [
        (Outcome(STOPPED, "stopped at step 3"), Stopped),
        (Outcome(InputError.exit_code, "no such label"), InputError),
        (Outcome(FAILED, "rank 0 ended"), UnderstudyError),
    ],
)
def test_a_job_that_did_not_end_well_is_an_error_of_its_kind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, work: Work, outcome: Outcome, raised: type[UnderstudyError]
) -> None:
    monkeypatch.setattr(LocalLauncher, "run", lambda *_: outcome)
    with pytest.raises(UnderstudyError, match=outcome.message) as error:
        run_job(work, job_spec(tmp_path))
    assert type(error.value) is raised


@pytest.mark.parametrize("attempt", ["", "attempt.2.abc"])
def test_the_result_of_a_job_is_that_of_its_last_attempt(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, work: Work, attempt: str
) -> None:
    (tmp_path / attempt / "output").mkdir(parents=True)
    monkeypatch.setattr(LocalLauncher, "run", lambda *_: Outcome(0))
    assert run_job(work, job_spec(tmp_path)) == tmp_path / attempt / "output"
