"""A launcher of a fake cluster, with a lease that another one can take."""

from tests.unit.launch.kubernetes.fake_cluster import FakeCluster
from understudy.errors import Fenced
from understudy.jobs.outcome import Outcome
from understudy.launch.kubernetes.controller import Controller
from understudy.launch.kubernetes.job import Job
from understudy.launch.metrics import Observation


class FakeLauncher:
    """A launcher that takes the lease, and has it until another one does.

    Args:
        cluster: where it launches.
        job: what.
        is_seen: whether ranks see that it renews its lease.
    """

    def __init__(self, cluster: FakeCluster, job: Job, *, is_seen: bool = True) -> None:
        self.cluster, self.job, self._is_seen = cluster, job, is_seen
        self.messages: list[str] = []
        self.seen: list[Observation] = []
        self.volume_error: OSError | None = None
        cluster.holder = self
        self._controller = Controller(
            job, cluster, self._watch, self.messages.append, self.seen.append, lambda: cluster.now
        )

    def _watch(self) -> None:
        if self.volume_error:
            raise self.volume_error
        if self.cluster.holder is not self:
            raise Fenced("another launcher has the step")
        self.cluster.ranks.seen_at = self.cluster.now if self._is_seen else -1e9

    def tick(self) -> Outcome | None:
        """Take the next step if it is time; the outcome once the job has ended."""
        self.cluster.acting = self
        try:
            return self._controller.tick()
        finally:
            self.cluster.acting = self.cluster.holder  # whoever else changes something may

    def watch_for(self, seconds: float) -> Outcome | None:
        """Supervise for so long; the outcome if there is one before."""
        until = self.cluster.now + seconds
        while self.cluster.now < until:
            if outcome := self.tick():
                return outcome
            self.cluster.pass_seconds(0.5)
        return None

    def sees(self, text: str, seconds: float = 1000.0) -> bool:
        """Supervise until this has been said; False when it was not within so many seconds, or the job has ended."""
        until = self.cluster.now + seconds
        while not any(text in line for line in self.messages):
            if self.cluster.now > until or self.watch_for(0.5):
                return False
        return True
