"""With how many nodes a job goes on that cannot have all of them. Only PyTorchJobs can: see Job.kind.

torchrun meets again with those that come, within the job's range. That is not enough where the queue admits a job whole
or not at all, and where the pod that hosts the rendezvous finds no node: then the job itself is made smaller.
"""

from collections.abc import Sequence

from understudy.jobs.specification import JobSpec
from understudy.launch.kubernetes.objects import KubernetesObject
from understudy.launch.kubernetes.pods import name, phase, unschedulable
from understudy.launch.kubernetes.standing import Standing


def size(job: KubernetesObject) -> int:
    """How many nodes a PyTorchJob asks for now."""
    return int(job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"])


def smaller(spec: JobSpec, job: KubernetesObject, standing: Standing, pods: Sequence[KubernetesObject]) -> int | None:
    """A number of nodes that the job may get, when it has waited long enough for what it asks; None when it may wait.

    Args:
        spec: the job, with its range.
        job: the PyTorchJob.
        standing: where it stands.
        pods: its pods.
    """
    if spec.least == spec.nodes:
        return None
    now = size(job)
    if now <= spec.least:
        return None
    if standing.stage == "queued":
        return now - 1 if standing.lacks_quota else None
    homeless = [pod for pod in pods if unschedulable(pod)]
    if standing.stage != "pending" or not homeless:
        return None
    # As many as found a node; one less than now at least, or the job would be changed into what it is.
    return max(spec.least, min(now - 1, len(pods) - len(homeless)))


def enough(spec: JobSpec, pods: Sequence[KubernetesObject]) -> Sequence[KubernetesObject]:
    """The pods that count: those that found a node, when the job does with so many and its first is among them.

    The first one hosts the rendezvous.
    """
    here = [pod for pod in pods if not unschedulable(pod)]
    return here if _suffice(spec, here) else pods


def goes_on(spec: JobSpec, pods: Sequence[KubernetesObject]) -> bool:
    """Whether so many pods run, the first among them, that the job does without the others."""
    return _suffice(spec, [pod for pod in pods if phase(pod) == "Running"])


def _suffice(spec: JobSpec, pods: Sequence[KubernetesObject]) -> bool:
    if len(pods) >= spec.nodes:
        return True
    # torchrun's range alone is not enough: of two pods for one free node the one that hosts the rendezvous is as likely
    # to be left out, and then nobody meets (docs/notes.md).
    has_host = any(name(pod).endswith("-worker-0") for pod in pods)
    return has_host and len(pods) >= spec.least


def resized(job: KubernetesObject, nodes: int) -> KubernetesObject:
    """The patch that makes a PyTorchJob ask for so many nodes, unless somebody changed it since it was seen."""
    # The resource version makes it a compare-and-swap: Kueue, or another launcher, may change the job at this moment.
    spec = {"elasticPolicy": {"maxReplicas": nodes}, "pytorchReplicaSpecs": {"Worker": {"replicas": nodes}}}
    return {"metadata": {"resourceVersion": job["metadata"]["resourceVersion"]}, "spec": spec}
