"""A launcher's job, as defined before any query of the cluster."""

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
    """When the run began (Unix seconds): rank failures of earlier runs do not count."""
    owner: OwnerReference | None
    """The job is deleted with this object, which outlives the launcher's pod."""
    task: TaskConfig = NOTHING
    """Settings of the task that launches it."""
    kind: JobKind = PYTORCHJOB
    """The kind of its object in the cluster."""

    @property
    def folder(self) -> Path:
        """The folder that its ranks write and its launcher reads."""
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
        """The manifest of the object in the cluster.

        Raises:
            InputError: the recipe names a pool that this cluster does not have, or the task's settings do not fit.
        """
        render = RENDER[self.kind.name]
        return render(self.spec, self.identity, self.resources, self.cluster, self.owner, self.task)
