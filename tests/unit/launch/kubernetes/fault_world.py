"""A cluster in memory with a launcher that supervises a job, for the tests of the fault table."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.jobs.specs import job_spec
from tests.unit.launch.kubernetes.fake_cluster import FakeCluster
from tests.unit.launch.kubernetes.fake_launcher import FakeLauncher
from tests.unit.launch.kubernetes.fake_ranks import Ranks
from tests.unit.launch.kubernetes.statuses import job_of
from understudy.errors import FAILED
from understudy.jobs.outcome import Outcome
from understudy.kube.kind import PYTORCHJOB, TRAINJOB, JobKind

BOTH = pytest.mark.parametrize("kind", [PYTORCHJOB, TRAINJOB], ids=lambda kind: kind.name)
"""For faults that a job of either kind can meet."""
SIGKILL = Outcome(FAILED, "rank 1 ended with signal SIGKILL", "killed")
MISTAKE = Outcome(FAILED, "rank 1: RuntimeError: no weights for 10 labels", "raised")


class World:
    """A cluster, a launcher in it that supervises a job of two nodes, and the rules that decided anything."""

    def __init__(self, folder: Path, kind: JobKind, resources: dict[str, Any]) -> None:
        settings = {"nodes": 2, "hang_timeout": 40, "termination_grace_period": 20, **resources}
        folder.mkdir()
        self.spec = job_spec(folder, supervised=True, resources=settings, launcher_timeout=30.0)
        self.job = job_of(self.spec, kind=kind)
        self.cluster = FakeCluster(Ranks(self.spec), nodes=self.spec.nodes, kind=kind)
        self.launcher = FakeLauncher(self.cluster, self.job)

    @property
    def attempt(self) -> Any:
        return list(self.cluster.ranks.attempts.values())[-1]

    def reaches(self, step: int) -> None:
        """Supervise until the ranks are there."""
        for _ in range(1000):
            assert self.launcher.watch_for(0.5) is None
            if self.cluster.ranks.attempts and self.attempt.step >= step:
                return
        raise AssertionError(self.launcher.messages)

    def ends(self, seconds: float = 3000.0) -> Outcome:
        outcome = self.launcher.watch_for(seconds)
        assert outcome is not None, self.launcher.messages
        if outcome.exit_code:
            self.cluster.pass_seconds(2)
            assert self.cluster.live_jobs(self.job.identity.labels["understudy.key"]) == []
        return outcome

    def run_until_progress(self, text: str, seconds: float = 1000.0) -> None:
        assert self.launcher.sees(text, seconds), self.launcher.messages

    def fails(self, *texts: str) -> None:
        outcome = self.ends()
        assert outcome.exit_code == FAILED
        for part in texts:
            assert part in outcome.message


Make = Callable[..., World]


def rules(*names: str) -> Any:
    """The rules that a fault is for."""
    return pytest.mark.rules(*names)
