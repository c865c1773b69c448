"""Everything that a launcher knows about its job before it asks the cluster."""

from dataclasses import dataclass
from pathlib import Path

from understudy.jobs.specification import JobSpec
from understudy.kube.identity import KEY, Identity
from understudy.kube.kind import PYTORCHJOB, TRAINJOB, JobKind
from understudy.kube.objects import KubernetesObject, OwnerReference
from understudy.kube.settings import Cluster
from understudy.launch.kubernetes.rendering import pytorchjob, trainjob
from understudy.launch.kubernetes.rendering.task_config import NOTHING, TaskConfig
from understudy.recipe import Resources

RENDER = {PYTORCHJOB.name: pytorchjob.render, TRAINJOB.name: trainjob.render}


@dataclass(frozen=True)
class Job:
    """One job of one launcher."""

    spec: JobSpec
    identity: Identity
    resources: Resources
    cluster: Cluster
    since: float
    """When the run began (Unix seconds): how ranks failed in earlier runs does not count for this one."""
    owner: OwnerReference | None
    """It outlives the launcher's pod; the job is deleted with it."""
    task: TaskConfig = NOTHING
    """What was set on the task that launches it."""
    kind: JobKind = PYTORCHJOB
    """What it is in the cluster."""

    @property
    def folder(self) -> Path:
        """Where its ranks write, and its launcher reads."""
        return Path(self.spec.folder)

    @property
    def name(self) -> str:
        """The name of the object that this run submits."""
        return self.identity.name

    @property
    def selector(self) -> str:
        """The labels of all jobs that do the same work, whichever run submitted them."""
        return f"{KEY}={self.identity.labels[KEY]}"

    def manifest(self) -> KubernetesObject:
        """The object in the cluster, as the API takes it.

        Raises:
            InputError: the recipe names a pool that this cluster does not have, or the task's settings do not fit.
        """
        render = RENDER[self.kind.name]
        return render(self.spec, self.identity, self.resources, self.cluster, self.owner, self.task)
