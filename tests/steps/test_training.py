from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.jobs.specs import job_spec
from understudy.errors import FAILED, STOPPED, InputError, Stopped, UnderstudyError
from understudy.jobs.outcome import Outcome
from understudy.jobs.specification import JobSpec
from understudy.launch.kubernetes import api, owner, settings, task_config
from understudy.launch.kubernetes.api import Object, Refused
from understudy.launch.kubernetes.kind import JobKind
from understudy.steps import training
from understudy.steps.step import Work


class Cluster:
    """Knows of no job, and accepts none."""

    submitted: Object

    def jobs(self, kind: JobKind, selector: str) -> list[Object]:
        return []

    def create_job(self, kind: JobKind, job: Object) -> None:
        Cluster.submitted = job
        raise Refused("no")


def test_the_job_of_a_step_is_submitted_with_what_is_set_on_its_task(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(settings.LAUNCHER, "pytorchjob")
    monkeypatch.setattr("understudy.steps.training.cluster_settings", lambda: settings.Cluster(image="i", claim="c"))
    monkeypatch.setattr(api, "Kube", Cluster)
    monkeypatch.setattr(owner, "owner_reference", lambda *_: None)
    monkeypatch.setenv(task_config.VARIABLE, "{}")
    task_config.hand_over({"node_selector": {"gpu": "h100"}})
    nothing: Any = lambda *_, **__: None  # noqa: E731
    run = SimpleNamespace(id="run", facts={"started": 0}, stop_requested=False, state=nothing)
    lease = SimpleNamespace(folder=tmp_path / "key" / "1", check=nothing)
    work = SimpleNamespace(step="teacher", run=run, lease=lease, progress=nothing)
    folder, logs = str(tmp_path / "job"), str(tmp_path / "logs")
    spec = job_spec(folder, logs=logs, supervised=True)
    _, outcome = training._launched(cast(Work, work), spec)
    assert "was not accepted: no" in outcome.message
    made = Cluster.submitted["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    assert made["nodeSelector"] == {"gpu": "h100"}


@pytest.mark.parametrize(
    ("outcome", "raised"),
    [
        (Outcome(STOPPED, "stopped at step 3"), Stopped),
        (Outcome(InputError.exit_code, "no such label"), InputError),
        (Outcome(FAILED, "rank 0 ended"), UnderstudyError),
    ],
)
def test_how_a_training_ended_is_what_its_record_hears(
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

    monkeypatch.setattr(training, "expect_jobs", lambda *_: None)
    monkeypatch.setattr(training, "_recorded", recorded)
    monkeypatch.setattr(training, "_launched", lambda work, spec: (spec, outcome))
    work = SimpleNamespace(step="teacher", recipe=None, run=None)
    with pytest.raises(raised, match=outcome.message):
        training.train(cast(Work, work), cast(JobSpec, None))
    assert heard == [raised]
