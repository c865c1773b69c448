"""The launcher interface: one method, from a job specification to the job's outcome.

All else that a launcher needs is passed to its constructor: see Platform.launcher().
"""

from typing import Protocol

from understudy.jobs.outcome import Outcome
from understudy.jobs.specification import JobSpec
from understudy.launch.metrics import JobMetrics


class Watch(Protocol):
    """Hooks of the caller that waits for a job."""

    def __call__(self) -> None:
        """Called several times a second while the job runs; an exception from it ends the waiting."""

    def tell(self, text: str) -> None:
        """Called with the job's state, whenever that changes."""

    @property
    def metrics(self) -> JobMetrics:
        """Receives each round's observation of a job in a cluster."""


class Launcher(Protocol):
    """Runs jobs."""

    def run(self, spec: JobSpec, watch: Watch) -> Outcome:
        """Run a job to its end.

        Args:
            spec: the job; it is written into its folder first.
            watch: the caller's hooks. An exception ends a job on this machine; one in a cluster continues for the
                next launcher.

        Returns:
            The job's outcome.

        Raises:
            InputError: the job cannot run there.
        """
        ...
