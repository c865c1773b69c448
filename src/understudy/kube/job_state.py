"""The job state: the stage of a job and its reason, read from its objects in the cluster.

Pure functions of API responses.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from understudy.kube.kind import PYTORCHJOB, JobKind
from understudy.kube.objects import KubernetesObject
from understudy.kube.pods import has_ended, image_error, name, phase, start_error, unschedulable

Stage = Literal["queued", "pending", "pulling", "running", "ending", "restarting", "succeeded", "failed", "gone"]


@dataclass(frozen=True)
class JobState:
    """The stage of a job at one time, and its reason."""

    stage: Stage
    detail: str = ""
    broken: str = ""
    """A fault that will not recover without help; it may still be given some time."""
    dead: tuple[str, ...] = ()
    """Deleted pods that do not end because their node does not answer."""
    lacks_quota: bool = False
    """Whether Kueue's quota does not suffice for it now."""

    @property
    def has_ended(self) -> bool:
        """Whether the job has ended."""
        return self.stage in ("succeeded", "failed", "gone")

    @property
    def is_never_admitted(self) -> bool:
        """Whether the queue can never take the job."""
        return is_never_admitted(self.detail)


def state_of(
    job: KubernetesObject | None,
    pods: Sequence[KubernetesObject],
    workload: KubernetesObject | None = None,
    dead: tuple[str, ...] = (),
    kind: JobKind = PYTORCHJOB,
) -> JobState:
    """The state of a job.

    Args:
        job: the object in the cluster; None when there is none.
        pods: its pods.
        workload: Kueue's Workload of it.
        dead: the names of pods whose node does not answer.
        kind: of the object.
    """
    # A job that is being deleted counts as gone: its pods may use their grace period, and no new ones start.
    if job is None or "deletionTimestamp" in job["metadata"]:
        return JobState("gone", "the job no longer exists")
    conditions = true_conditions(job)
    if "Failed" in conditions:
        return JobState("failed", _message(conditions["Failed"]))
    if kind.succeeded in conditions:
        return JobState("succeeded", _message(conditions[kind.succeeded]))
    if kind.is_suspended(job):
        return JobState("queued", _why_queued(workload), lacks_quota=_lacks_quota(workload))
    return _active(pods, conditions, dead)


def _active(
    pods: Sequence[KubernetesObject], conditions: dict[str, KubernetesObject], dead: tuple[str, ...]
) -> JobState:
    """The state of a job that should be running."""
    node_names = {name(pod): pod["spec"].get("nodeName", "") for pod in pods}
    if dead:
        nodes = ", ".join(sorted({node_names[pod] for pod in dead}))
        return JobState("restarting", f"node {nodes} does not answer; its pods are force-deleted", dead=dead)
    for pod in pods:
        if error := image_error(pod):
            return JobState("pulling", error, broken=error)
        if error := start_error(pod):
            return JobState("pending", error, broken=error)
    waiting = [pod for pod in pods if phase(pod) == "Pending"]
    if len(waiting) == len(pods) or any(unschedulable(pod) for pod in waiting):
        return _pending(pods, conditions)
    if waiting:
        return JobState("pulling", f"{len(waiting)} of {len(pods)} pods are getting their image or volumes")
    if "Restarting" in conditions and "Running" not in conditions:
        return JobState("restarting", _message(conditions["Restarting"]))
    if all(has_ended(pod) for pod in pods):
        return JobState("ending", "all pods have ended")
    return JobState("running", f"on {', '.join(sorted(set(node_names.values())))}")


def _pending(pods: Sequence[KubernetesObject], conditions: dict[str, KubernetesObject]) -> JobState:
    for pod in pods:
        if reason := unschedulable(pod):
            return JobState("pending", f"no node fits {name(pod)}: {reason}")
    if not pods:
        cause = "after a restart" if "Restarting" in conditions else "for the training operator to make its pods"
        return JobState("pending", f"waiting {cause}")
    return JobState("pulling", "the pods are getting their image and volumes")


def true_conditions(owner: KubernetesObject) -> dict[str, KubernetesObject]:
    """An object's conditions that are true, by their type."""
    return {
        condition["type"]: condition
        for condition in owner.get("status", {}).get("conditions", ())
        if condition["status"] == "True"
    }


def _message(condition: KubernetesObject) -> str:
    return str(condition.get("message") or condition.get("reason") or "")


def _why_queued(workload: KubernetesObject | None) -> str:
    if workload is None:
        return "suspended; Kueue has not seen it yet"
    if "Evicted" in true_conditions(workload):
        return f"Kueue: {true_conditions(workload)['Evicted']['message']}"
    for condition in workload.get("status", {}).get("conditions", ()):
        if condition["type"] == "QuotaReserved" and condition["status"] != "True":
            return f"Kueue: {condition['message']}"
    return f"waiting in the queue {workload['spec'].get('queueName', '')}"


def _lacks_quota(workload: KubernetesObject | None) -> bool:
    for condition in workload.get("status", {}).get("conditions", ()) if workload else ():
        if condition["type"] == "QuotaReserved" and condition["status"] == "False":
            return "insufficient" in condition["message"]
    return False


def is_never_admitted(message: str) -> bool:
    """Whether no flavor could ever take a job: Kueue's message names all flavors, and one may only be in use now."""
    # "unused quota" may be free later; "maximum capacity" never. A job is hopeless only if every flavor that is in use
    # now is too small as well: a job that only waited for one of several flavors was failed once.
    in_use = set(re.findall(r"insufficient unused quota for \S+ in flavor ([^,]+)", message))
    too_small = set(re.findall(r"insufficient quota for \S+ in flavor ([^,]+), request > maximum capacity", message))
    misnamed = re.search(r"doesn't match ClusterQueue selector|(Local|Cluster)Queue \S+ doesn't exist", message)
    return misnamed is not None or ("maximum capacity" in message and in_use <= too_small)
