"""Who runs a job: a launcher has one method, which takes a job specification and returns the job's outcome.

What a launcher needs beside that, it is made with: see Platform.launcher().
"""

from typing import Protocol

from understudy.jobs.outcome import Outcome
from understudy.jobs.specification import JobSpec
from understudy.launch.metrics import JobMetrics


class Watch(Protocol):
    """Who waits for a job."""

    def __call__(self) -> None:
        """Called several times a second while the job runs; an exception from it ends the waiting."""

    def tell(self, text: str) -> None:
        """Called with the job's state, whenever that changes."""

    @property
    def metrics(self) -> JobMetrics:
        """Shown what is seen of a job in a cluster, in each round."""


class Launcher(Protocol):
    """Runs jobs."""

    def run(self, spec: JobSpec, watch: Watch) -> Outcome:
        """See a job to its end.

        Args:
            spec: the job; it is written into its folder first.
            watch: who waits for it. An exception ends a job on this machine; one in a cluster goes on for whoever
                comes next.

        Returns:
            How the job ended.

        Raises:
            InputError: the job cannot run there.
        """
        ...
