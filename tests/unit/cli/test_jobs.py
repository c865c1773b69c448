"""Commands about jobs without a namespace; with one they are tested in tests/cluster."""

from dataclasses import replace

import pytest

from understudy.cli import jobs
from understudy.errors import InputError
from understudy.kube import api
from understudy.runs import orphans
from understudy.runs.orphans import ClusterJob


class Nowhere:
    """A cluster that does not have the namespace that is asked for."""

    def __init__(self, namespace: str | None) -> None:
        self.namespace = namespace

    def has_namespace(self) -> bool:
        return False


def test_a_namespace_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "Kube", Nowhere)
    for command in (jobs.list_, lambda namespace: jobs.stop("run", namespace), jobs.gc):
        with pytest.raises(InputError, match="there is no namespace nowhere; give another one with -n"):
            command("nowhere")


def test_orphans_are_removed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    removed: list[str] = []
    left = ClusterJob("teacher-1", "TrainJob", "run-1", "teacher", "running", 9.0, "Job run-1 has ended")
    monkeypatch.setattr(Nowhere, "has_namespace", lambda _: True)
    monkeypatch.setattr(api, "Kube", Nowhere)
    monkeypatch.setattr(orphans, "list_jobs", lambda *_: [left, replace(left, name="teacher-2", orphan="")])
    monkeypatch.setattr(orphans, "remove", lambda _, job: removed.append(job.name))
    jobs.gc("here", yes=True)
    assert removed == ["teacher-1"]
    assert capsys.readouterr().out == "teacher-1: Job run-1 has ended\n1 removed\n"
