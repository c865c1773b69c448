"""The launcher of a cluster: a job is an object of the cluster's operator, and the controller sees it to its end."""

from dataclasses import dataclass

from understudy.jobs.outcome import Outcome
from understudy.jobs.specification import JobSpec
from understudy.kube.api import Kube, retry_while_away
from understudy.kube.identity import Identity
from understudy.kube.kind import JobKind
from understudy.kube.owner import owner_now
from understudy.kube.settings import Cluster
from understudy.launch.kubernetes import controller, preflight
from understudy.launch.kubernetes.job import Job
from understudy.launch.kubernetes.rendering.task_config import TaskConfig
from understudy.launch.launcher import Watch


@dataclass(frozen=True)
class KubernetesLauncher:
    """Runs the job of one step of one run."""

    kind: JobKind
    """What the job is in the cluster."""
    identity: Identity
    since: float
    """When the run began (Unix seconds)."""
    cluster: Cluster
    task: TaskConfig
    """What was set on the task that this process is."""

    def run(self, spec: JobSpec, watch: Watch) -> Outcome:
        """See a job to its end; arguments, outcome and errors as of Launcher.run()."""
        kube = Kube()
        retry_while_away(lambda: preflight.check(kube, self.kind, self.cluster, spec.resources, spec.section), watch)
        # Each request by itself, so that an outage between two of them repeats the second only.
        owner = retry_while_away(lambda: owner_now(kube), watch)
        job = Job(spec, self.identity, spec.resources, self.cluster, self.since, owner, self.task, self.kind)
        retry_while_away(lambda: preflight.refuse_duplicate(kube, self.kind, job.selector), watch)
        return controller.run(job, kube, watch, watch.tell)
