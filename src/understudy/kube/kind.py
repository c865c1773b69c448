"""The kinds of object that run a job in a cluster, and the differences between their fields."""

from dataclasses import dataclass
from typing import Any

from understudy.kube.objects import KubernetesObject


@dataclass(frozen=True)
class JobKind:
    """A type of training job: its address in the API, and the fields of its objects."""

    group: str
    version: str
    plural: str
    name: str
    operator: str
    """The software to install for it."""
    pod_label: str
    """The label of a job's pods; its value is the job's name."""
    succeeded: str
    """The condition by which the operator reports success."""
    container: str
    """The name of the ranks' container, which the operator requires."""
    suspend: tuple[str, ...]
    """The path of the suspend flag below `spec`."""
    replaces_pods: bool
    """Whether the operator replaces single pods. Otherwise all pods of a job start together, and pods of an earlier job
    of the same name must have ended before."""
    refusals: tuple[str, ...]
    """The reasons of events that explain why a job has no pods."""
    fields: tuple[str, ...]
    """The fields of its spec that we set; doctor checks whether the cluster's type has them."""
    pod_maker: str = ""
    """The suffix, after the job's name, of the Job that creates its pods; empty if the operator creates them."""

    @property
    def api_version(self) -> str:
        """Group and version, as an object names them."""
        return f"{self.group}/{self.version}"

    @property
    def missing(self) -> str:
        """The fix for a cluster without this type."""
        fix = f"install {self.operator}, or set `launcher` in the cluster's settings to one that it has"
        return f"this cluster does not serve {self.name}s of {self.api_version}: {fix}"

    def pods_of(self, job: str) -> str:
        """The selector of a job's pods."""
        return f"{self.pod_label}={job}"

    def is_suspended(self, job: KubernetesObject) -> bool:
        """Whether the job is suspended, for example by its queue."""
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
