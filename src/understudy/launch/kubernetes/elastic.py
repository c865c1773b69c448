"""Elastic jobs: with how many nodes a job continues that cannot get all. Only PyTorchJobs can: see Job.kind.

torchrun's rendezvous accepts the nodes that arrive, within the range. That is not enough where the queue
admits a job whole or not at all, and where the pod that hosts the rendezvous finds no node: then the job itself is made
smaller.
"""

from collections.abc import Sequence

from understudy.jobs.specification import JobSpec
from understudy.kube.job_state import JobState
from understudy.kube.objects import KubernetesObject
from understudy.kube.pods import name, phase, unschedulable


def size(job: KubernetesObject) -> int:
    """How many nodes a PyTorchJob asks for now."""
    return int(job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"])


def smaller_size(spec: JobSpec, job: KubernetesObject, state: JobState, pods: Sequence[KubernetesObject]) -> int | None:
    """A number of nodes that the job may get, when it has waited long enough for what it asks; None when it may wait.

    Args:
        spec: the job, with its range.
        job: the PyTorchJob.
        state: its state.
        pods: its pods.
    """
    if spec.min_nodes == spec.nodes:
        return None
    now = size(job)
    if now <= spec.min_nodes:
        return None
    if state.stage == "queued":
        return now - 1 if state.lacks_quota else None
    homeless = [pod for pod in pods if unschedulable(pod)]
    if state.stage != "pending" or not homeless:
        return None
    # As many as found a node; one less than now at least, or the job would be changed into what it is.
    return max(spec.min_nodes, min(now - 1, len(pods) - len(homeless)))


def sufficient_pods(spec: JobSpec, pods: Sequence[KubernetesObject]) -> Sequence[KubernetesObject]:
    """The pods that count: those that found a node, if they suffice for the job and its first pod is among them.

    The first one hosts the rendezvous.
    """
    here = [pod for pod in pods if not unschedulable(pod)]
    return here if _suffice(spec, here) else pods


def enough_running(spec: JobSpec, pods: Sequence[KubernetesObject]) -> bool:
    """Whether so many pods run, the first among them, that the job does without the others."""
    return _suffice(spec, [pod for pod in pods if phase(pod) == "Running"])


def _suffice(spec: JobSpec, pods: Sequence[KubernetesObject]) -> bool:
    if len(pods) >= spec.nodes:
        return True
    # torchrun's range alone is not enough: of two pods for one free node the one that hosts the rendezvous is as likely
    # to be left out, and then there is no rendezvous (docs/how-it-works/notes.md).
    has_host = any(name(pod).endswith("-worker-0") for pod in pods)
    return has_host and len(pods) >= spec.min_nodes


def resize_patch(job: KubernetesObject, nodes: int) -> KubernetesObject:
    """The patch that makes a PyTorchJob request so many nodes, unless it was changed since it was observed."""
    # The resource version makes it a compare-and-swap: Kueue, or another launcher, may change the job at this moment.
    spec = {"elasticPolicy": {"maxReplicas": nodes}, "pytorchReplicaSpecs": {"Worker": {"replicas": nodes}}}
    return {"metadata": {"resourceVersion": job["metadata"]["resourceVersion"]}, "spec": spec}
