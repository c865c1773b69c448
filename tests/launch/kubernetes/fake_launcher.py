"""A launcher of a fake cluster, with a lease that another one can take."""

from tests.launch.kubernetes.fake_cluster import FakeCluster
from understudy.errors import Fenced
from understudy.jobs.outcome import Outcome
from understudy.launch.kubernetes.controller import Controller
from understudy.launch.kubernetes.job import Job


class FakeLauncher:
    """A launcher that holds the lease until another one takes it."""

    def __init__(self, cluster: FakeCluster, job: Job) -> None:
        self.cluster, self.job = cluster, job
        self.said: list[str] = []
        cluster.holder = self
        self.controller = Controller(job, cluster, self.watch, self._tell, lambda: cluster.now)

    def watch(self) -> None:
        """Renew the lease.

        Raises:
            Fenced: another one has it.
        """
        if self.cluster.holder is not self:
            raise Fenced("another launcher has the step")
        self.cluster.ranks.seen_at = self.cluster.now

    def _tell(self, text: str) -> None:
        self.said.append(text)

    def watch_for(self, seconds: float) -> Outcome | None:
        """Supervise for so long; the outcome if there is one before."""
        until = self.cluster.now + seconds
        while self.cluster.now < until:
            if outcome := self.controller.tick():
                return outcome
            self.cluster.pass_seconds(0.5)
        return None

    def sees(self, words: str, seconds: float = 1000.0) -> bool:
        """Supervise until this has been said; False when it was not within so many seconds, or the job has ended."""
        until = self.cluster.now + seconds
        while not any(words in line for line in self.said):
            if self.cluster.now > until or self.watch_for(0.5):
                return False
        return True
