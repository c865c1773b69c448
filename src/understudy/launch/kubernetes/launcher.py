"""The Kubernetes launcher: a job is an object of the cluster's operator, supervised by the controller."""

import logging
from contextlib import suppress
from dataclasses import dataclass

from understudy.errors import UnderstudyError
from understudy.jobs.outcome import Outcome
from understudy.jobs.specification import JobSpec
from understudy.kube.api import Kube, retry_while_away
from understudy.kube.identity import Identity
from understudy.kube.kind import JobKind
from understudy.kube.objects import OwnerReference
from understudy.kube.owner import owner_now
from understudy.kube.owner_state import why_ended
from understudy.kube.settings import Cluster
from understudy.launch.kubernetes import controller, preflight
from understudy.launch.kubernetes.job import Job
from understudy.launch.kubernetes.rendering.task_config import TaskConfig
from understudy.launch.launcher import Watch

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class KubernetesLauncher:
    """Runs the job of one step of one run."""

    kind: JobKind
    """The kind of the job's object in the cluster."""
    identity: Identity
    since: float
    """When the run began (Unix seconds)."""
    cluster: Cluster
    task: TaskConfig
    """Settings of the task that this process runs."""

    def run(self, spec: JobSpec, watch: Watch) -> Outcome:
        """Run a job to its end; arguments, outcome and errors as of Launcher.run()."""
        kube = Kube()
        retry_while_away(lambda: preflight.check(kube, self.kind, self.cluster, spec.resources, spec.section), watch)
        # Separate retries, so that an outage between two requests repeats only the second.
        owner = retry_while_away(lambda: owner_now(kube), watch)
        job = Job(spec, self.identity, spec.resources, self.cluster, self.since, owner, self.task, self.kind)
        retry_while_away(lambda: preflight.refuse_duplicate(kube, self.kind, job.selector), watch)
        try:
            return controller.run(job, kube, watch, watch.tell, watch.metrics.observe)
        except SystemExit:  # this pod has to end
            self._end_with_the_run(kube, owner)
            raise

    def _end_with_the_run(self, kube: Kube, owner: OwnerReference | None) -> None:
        """Delete the job if the run is over; otherwise it continues for the next launcher.

        "Terminate" in KFP kills a task within two seconds of SIGTERM, and leaves the objects of its Workflow as they
        are. If that is too short for two requests, the ranks detect by themselves that no launcher is left.
        """
        with suppress(UnderstudyError):  # no caller is left; see above
            if owner and (reason := why_ended(kube, owner)):
                kube.delete_job(self.kind, self.identity.name)
                log.warning("%s: the job %s ends, after a checkpoint", reason, self.identity.name)
