"""Elastic jobs: the number of nodes of a job that cannot get all. Only PyTorchJobs are elastic: see Job.kind.

torchrun's rendezvous accepts the nodes that arrive, within the range. That is not enough if the queue admits jobs only
as a whole, or if the pod that hosts the rendezvous is unschedulable: then the job itself is resized.
"""

from collections.abc import Sequence

from understudy.jobs.specification import JobSpec
from understudy.kube.job_state import JobState
from understudy.kube.objects import KubernetesObject
from understudy.kube.pods import name, phase, unschedulable


def size(job: KubernetesObject) -> int:
    """Number of nodes that a PyTorchJob requests now."""
    return int(job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"])


def smaller_size(spec: JobSpec, job: KubernetesObject, state: JobState, pods: Sequence[KubernetesObject]) -> int | None:
    """A smaller number of nodes, which the job may get; None if it should wait for those that it requests.

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
    # As many as were scheduled, and at least one fewer than now: otherwise nothing would change.
    return max(spec.min_nodes, min(now - 1, len(pods) - len(homeless)))


def sufficient_pods(spec: JobSpec, pods: Sequence[KubernetesObject]) -> Sequence[KubernetesObject]:
    """The scheduled pods if they suffice for the job and include its first pod, otherwise all pods.

    The first pod hosts the rendezvous.
    """
    scheduled = [pod for pod in pods if not unschedulable(pod)]
    return scheduled if _suffice(spec, scheduled) else pods


def enough_running(spec: JobSpec, pods: Sequence[KubernetesObject]) -> bool:
    """Whether enough pods run, including the first, for the job to do without the others."""
    return _suffice(spec, [pod for pod in pods if phase(pod) == "Running"])


def _suffice(spec: JobSpec, pods: Sequence[KubernetesObject]) -> bool:
    if len(pods) >= spec.nodes:
        return True
    # torchrun's range alone is not enough: with two pods for one free node, the host of the rendezvous is as likely to
    # be left out, and then there is no rendezvous (docs/how-it-works/notes.md).
    has_host = any(name(pod).endswith("-worker-0") for pod in pods)
    return has_host and len(pods) >= spec.min_nodes


def resize_patch(job: KubernetesObject, nodes: int) -> KubernetesObject:
    """The patch that sets the number of nodes of a PyTorchJob, unless the job was changed since it was observed."""
    # The resource version makes it a compare-and-swap: Kueue or another launcher may change the job concurrently.
    spec = {"elasticPolicy": {"maxReplicas": nodes}, "pytorchReplicaSpecs": {"Worker": {"replicas": nodes}}}
    return {"metadata": {"resourceVersion": job["metadata"]["resourceVersion"]}, "spec": spec}
