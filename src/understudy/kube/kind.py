"""The kinds of object that a job can be in a cluster, and where their fields differ."""

from dataclasses import dataclass
from typing import Any

from understudy.kube.objects import KubernetesObject


@dataclass(frozen=True)
class JobKind:
    """A type of training job: where the API keeps it, and how its objects are read."""

    group: str
    version: str
    plural: str
    name: str
    operator: str
    """What has to be installed for it."""
    pod_label: str
    """The label by which a job's pods are found; its value is the job's name."""
    succeeded: str
    """The condition that a job has when it ended well, as far as its operator knows."""
    container: str
    """The container that the ranks run in; the operator looks for one of this name."""
    suspend: tuple[str, ...]
    """Where below `spec` it says that the job is to wait."""
    replaces_pods: bool
    """Whether the operator replaces single pods. Otherwise all pods of a job start together, and pods of an earlier job
    of the same name must have ended before."""
    refusals: tuple[str, ...]
    """The reasons of events that explain why a job has no pods."""
    fields: tuple[str, ...]
    """What we set of its spec; doctor looks whether the cluster's type has it."""
    pod_maker: str = ""
    """What follows the job's name in that of the Job that makes its pods; empty where the operator makes them."""

    @property
    def api_version(self) -> str:
        """Group and version, as an object names them."""
        return f"{self.group}/{self.version}"

    @property
    def missing(self) -> str:
        """What to do about a cluster without this type."""
        fix = f"install {self.operator}, or set `launcher` in the cluster's settings to one that it has"
        return f"this cluster does not know {self.name}s of {self.api_version}: {fix}"

    def pods_of(self, job: str) -> str:
        """The selector of a job's pods."""
        return f"{self.pod_label}={job}"

    def is_suspended(self, job: KubernetesObject) -> bool:
        """Whether the job is suspended, by its queue say."""
        value: Any = job["spec"]
        for key in self.suspend:
            value = value.get(key) or {}
        return bool(value)


PYTORCHJOB = JobKind(
    group="kubeflow.org",
    version="v1",
    plural="pytorchjobs",
    name="PyTorchJob",
    operator="the Kubeflow Training Operator 1.9",
    pod_label="training.kubeflow.org/job-name",
    succeeded="Succeeded",
    container="pytorch",
    suspend=("runPolicy", "suspend"),
    replaces_pods=True,
    refusals=("FailedCreatePod",),
    fields=("pytorchReplicaSpecs", "runPolicy", "elasticPolicy"),
)
TRAINJOB = JobKind(
    group="trainer.kubeflow.org",
    version="v1alpha1",
    plural="trainjobs",
    name="TrainJob",
    operator="Kubeflow Trainer 2.1 with JobSet 0.10",
    pod_label="jobset.sigs.k8s.io/jobset-name",
    succeeded="Complete",
    container="node",
    suspend=("suspend",),
    replaces_pods=False,
    refusals=("FailedCreate", "TrainJobResourcesCreationFailed"),
    fields=("runtimeRef", "suspend", "trainer", "podTemplateOverrides"),
    pod_maker="-node-0",
)
KINDS = {"pytorchjob": PYTORCHJOB, "trainjob": TRAINJOB}
"""By the names of their launchers, which the cluster's settings use."""
