"""What a job's objects in the cluster say about it: where it stands, in a sentence, and whether that can end well.

Pure functions of what the API answered: nothing here asks anything.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from understudy.launch.kubernetes.api import Object
from understudy.launch.kubernetes.kind import PYTORCHJOB, JobKind

Stage = Literal["queued", "pending", "pulling", "starting", "running", "restarting", "succeeded", "failed", "gone"]
BROKEN_IMAGE = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable")
BROKEN_POD = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")
MOUNT_FAILURES = ("FailedMount", "FailedAttachVolume", "FailedMapVolume", "FailedCreatePodSandBox")
UNITS = {"m": Decimal("0.001"), "k": Decimal(10**3), "M": Decimal(10**6), "G": Decimal(10**9), "T": Decimal(10**12)}
UNITS |= {"Ki": Decimal(2**10), "Mi": Decimal(2**20), "Gi": Decimal(2**30), "Ti": Decimal(2**40)}


@dataclass(frozen=True)
class Sight:
    """A job as it was seen at one time."""

    stage: Stage
    detail: str = ""
    broken: str = ""
    """What will not mend by itself; it may still be given some time."""
    dead: tuple[str, ...] = ()
    """Pods that were deleted and do not end: their node does not answer."""
    lacks_quota: bool = False
    """Whether Kueue has not enough for it now."""


def look(
    job: Object | None,
    pods: Sequence[Object],
    workload: Object | None = None,
    dead: tuple[str, ...] = (),
    kind: JobKind = PYTORCHJOB,
) -> Sight:
    """Where a job stands.

    Args:
        job: the object in the cluster; None when there is none.
        pods: its pods.
        workload: what Kueue knows of it.
        dead: the names of those whose node does not answer.
        kind: what it is.
    """
    if job is None or "deletionTimestamp" in job["metadata"]:
        return Sight("gone", "the job is not there any more")
    conditions = holding(job)
    if "Failed" in conditions:
        return Sight("failed", _said(conditions["Failed"]))
    if kind.succeeded in conditions:
        return Sight("succeeded", _said(conditions[kind.succeeded]))
    if kind.is_suspended(job):
        return Sight("queued", _queued(workload), lacks_quota=_lacks_quota(workload))
    return _active(pods, conditions, dead)


def _active(pods: Sequence[Object], conditions: dict[str, Any], dead: tuple[str, ...]) -> Sight:
    """Where a job stands that should be running."""
    places = {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in pods}
    if dead:
        nodes = ", ".join(sorted({places[name] for name in dead}))
        return Sight("restarting", f"node {nodes} does not answer; its pods are given up", dead=dead)
    for pod in pods:
        if trouble := _trouble(pod):
            return Sight("pulling" if trouble[0] else "pending", trouble[1], broken=trouble[1])
    waiting = [pod for pod in pods if _phase(pod) == "Pending"]
    if not pods or len(waiting) == len(pods) or any(unschedulable(pod) for pod in waiting):
        return _pending(pods, conditions)
    if waiting:
        return Sight("pulling", f"{len(waiting)} of {len(pods)} pods are getting their image or volumes")
    if "Restarting" in conditions and "Running" not in conditions:
        return Sight("restarting", _said(conditions["Restarting"]))
    return Sight("running", f"on {', '.join(sorted(set(places.values())))}")


def _pending(pods: Sequence[Object], conditions: dict[str, Any]) -> Sight:
    for pod in pods:
        if reason := unschedulable(pod):
            return Sight("pending", f"no node takes {pod['metadata']['name']}: {reason}")
    if not pods:
        why = "after a restart" if "Restarting" in conditions else "for the training operator to make its pods"
        return Sight("pending", f"waiting {why}")
    return Sight("pulling", "the pods are getting their image and volumes")


def _queued(workload: Object | None) -> str:
    if workload is None:
        return "suspended; Kueue has not seen it yet"
    conditions = workload.get("status", {}).get("conditions", ())
    for kind in ("Evicted", "QuotaReserved"):
        for condition in conditions:
            if condition["type"] == kind and (condition["status"] == "True") == (kind == "Evicted"):
                return f"Kueue: {condition['message']}"
    return f"waiting in the queue {workload['spec'].get('queueName', '')}"


def _lacks_quota(workload: Object | None) -> bool:
    conditions = workload.get("status", {}).get("conditions", ()) if workload else ()
    return any(
        c["type"] == "QuotaReserved" and c["status"] == "False" and "insufficient" in c["message"] for c in conditions
    )


def _said(condition: dict[str, Any]) -> str:
    return str(condition.get("message") or condition.get("reason") or "")


def _phase(pod: Object) -> str:
    return str(pod.get("status", {}).get("phase", "Pending"))


def unschedulable(pod: Object) -> str:
    """Why the scheduler finds no node for a pod; nothing when it has found one."""
    for condition in pod.get("status", {}).get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition.get("message") or condition.get("reason"))
    return ""


def _trouble(pod: Object) -> tuple[bool, str] | None:
    """What keeps a container from starting: whether it is the image, and in words."""
    for container in pod.get("status", {}).get("containerStatuses", ()):
        waiting = container.get("state", {}).get("waiting") or {}
        reason = waiting.get("reason", "")
        if reason in BROKEN_IMAGE:
            said = waiting.get("message") or reason
            fix = "push it, or give the pod's ServiceAccount an imagePullSecret"
            return True, f"image {container['image']} cannot be pulled: {said}; {fix}"
        if reason in BROKEN_POD:
            return False, f"{pod['metadata']['name']} cannot start: {waiting.get('message') or reason}"
    return None


def is_dead(pod: Object, now: float) -> bool:
    """Deleted, past its grace period, and still there, if this machine's clock is right: nobody on its node ends it."""
    since = pod["metadata"].get("deletionTimestamp")  # that is the time at which the grace period ends
    return since is not None and now > seconds(since) + 5


def overdue(pods: Iterable[Object], now: float) -> tuple[str, ...]:
    """The names of those that are dead, to be shown and no more."""
    return tuple(pod["metadata"]["name"] for pod in pods if is_dead(pod, now))


def first_pending(pods: Iterable[Object]) -> Object:
    """A pod that waits; there has to be one."""
    return next(pod for pod in pods if _phase(pod) == "Pending")


def without_volumes(events: Sequence[Object]) -> tuple[str, float]:
    """Why a pod does not get its volumes or its network, and for how many seconds that has been so.

    Args:
        events: all that was reported of the pod, the newest last; of one that got them, something else comes after.
    """
    told = [event for event in events if event.get("reason") != "SandboxChanged"]  # that goes before a next try
    failed = [event for event in told if event.get("reason") in MOUNT_FAILURES and event.get("lastTimestamp")]
    if not failed or failed[-1] is not told[-1]:
        return "", 0.0
    began = min(seconds(event.get("firstTimestamp") or event["lastTimestamp"]) for event in failed)
    why = re.sub(r"[0-9a-f]{32,}", "...", failed[-1]["message"])  # every try has another sandbox
    return why, seconds(failed[-1]["lastTimestamp"]) - began


def holding(thing: Object) -> dict[str, Object]:
    """An object's conditions that are true, by their type."""
    return {one["type"]: one for one in thing.get("status", {}).get("conditions", ()) if one["status"] == "True"}


def seconds(timestamp: str) -> float:
    """Unix seconds of a Kubernetes time."""
    from datetime import datetime

    return datetime.fromisoformat(timestamp.replace("Z", "+00:00")).timestamp()


def death(pods: Iterable[Object]) -> str:
    """Why a job's pods ended, as far as Kubernetes knows it: the first one's reason, exit code and message."""
    ends = []
    for pod in pods:
        status, name = pod.get("status", {}), pod["metadata"]["name"]
        if status.get("phase") == "Failed" and status.get("reason"):
            ends.append(("", f"{name} was ended ({status['reason']}): {status.get('message', '')}"))
        for container in status.get("containerStatuses", ()):
            ended = (
                container.get("state", {}).get("terminated") or container.get("lastState", {}).get("terminated")
            ) or {}
            if ended.get("exitCode"):
                words = f"{name} ended with exit code {ended['exitCode']} ({ended.get('reason', 'Error')})"
                ends.append((ended.get("finishedAt") or "", f"{words} {ended.get('message', '')}".strip()))
    return min(ends, default=("", ""))[1]


def was_disrupted(pods: Iterable[Object]) -> bool:
    """Whether a pod had to go for reasons that lie outside of it."""
    return any(
        condition["type"] == "DisruptionTarget" and condition["status"] == "True"
        for pod in pods
        for condition in pod.get("status", {}).get("conditions", ())
    )


def never_fits(pod: Object, nodes: Sequence[Object]) -> str:
    """Why no node could take a pod even if it were empty; nothing when one could."""
    fitting = _chosen(pod, nodes)
    if not fitting:
        wanted = ", ".join(f"{key}={value}" for key, value in (pod["spec"].get("nodeSelector") or {}).items())
        return f"no node has the labels {wanted}"
    for name, value in _asked(pod).items():
        most = max(amount(node["status"].get("allocatable", {}).get(name, "0")) for node in fitting)
        if value > most:
            return f"a pod asks for {value:f} {name}, and the largest node of its kind has {most:f}"
    return ""


def has_its_kind(pod: Object, nodes: Sequence[Object]) -> bool:
    """Whether a node is there that a pod chooses and that has some of everything that it asks for."""
    offers = [node["status"].get("allocatable", {}) for node in _chosen(pod, nodes)]
    return any(all(amount(offer.get(name, "0")) > 0 for name in _asked(pod)) for offer in offers)


def _chosen(pod: Object, nodes: Sequence[Object]) -> list[Object]:
    selector = pod["spec"].get("nodeSelector") or {}
    return [node for node in nodes if selector.items() <= (node["metadata"].get("labels") or {}).items()]


def _asked(pod: Object) -> dict[str, Decimal]:
    asked: dict[str, Decimal] = {}
    for container in pod["spec"]["containers"]:
        for name, value in (container.get("resources", {}).get("requests") or {}).items():
            asked[name] = asked.get(name, Decimal(0)) + amount(value)
    return asked


def amount(quantity: str) -> Decimal:
    """A Kubernetes quantity as a number: 500m is 0.5, 1Ki is 1024."""
    for unit in sorted(UNITS, key=len, reverse=True):
        if quantity.endswith(unit):
            return Decimal(quantity.removesuffix(unit)) * UNITS[unit]
    return Decimal(quantity)
