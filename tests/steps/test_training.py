from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.jobs.specs import job_spec
from understudy.errors import FAILED, STOPPED, InputError, Stopped, UnderstudyError
from understudy.jobs.outcome import Outcome
from understudy.jobs.specification import JobSpec
from understudy.launch.local.platform import LocalPlatform
from understudy.steps import training
from understudy.steps.step import Work


@pytest.mark.parametrize(
    ("outcome", "raised"),
    [
        (Outcome(STOPPED, "stopped at step 3"), Stopped),
        (Outcome(InputError.exit_code, "no such label"), InputError),
        (Outcome(FAILED, "rank 0 ended"), UnderstudyError),
    ],
)
def test_the_recorder_sees_how_a_training_ended(
    monkeypatch: pytest.MonkeyPatch, outcome: Outcome, raised: type[UnderstudyError]
) -> None:
    heard: list[type[BaseException]] = []

    @contextmanager
    def recorded(*_: object) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            heard.append(type(error))
            raise

    monkeypatch.setattr(LocalPlatform, "prepare", lambda *_: None)
    monkeypatch.setattr(training, "_record", recorded)
    monkeypatch.setattr(training, "_outcome", lambda work, spec: outcome)
    work = SimpleNamespace(step="teacher", recipe=SimpleNamespace(resources=None), run=None)
    with pytest.raises(raised, match=outcome.message):
        training.train(cast(Work, work), cast(JobSpec, None))
    assert heard == [raised]


@pytest.mark.parametrize("attempt", ["", "attempt.2.abc"])
def test_the_model_of_a_job_is_that_of_its_last_attempt(tmp_path: Path, attempt: str) -> None:
    (tmp_path / attempt / "output").mkdir(parents=True)
    assert training._output(job_spec(tmp_path)) == tmp_path / attempt / "output"
