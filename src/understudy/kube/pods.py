"""The state of pods: whether one starts, why it waits, whether its node answers, and how it ended.

Pure functions of API responses.
"""

import re
from collections.abc import Iterable, Sequence

from understudy.kube.objects import KubernetesObject
from understudy.kube.quantities import seconds

BROKEN_IMAGE = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable")
BROKEN_POD = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")
MOUNT_FAILURES = ("FailedMount", "FailedAttachVolume", "FailedMapVolume", "FailedCreatePodSandBox")
CLOCK_SKEW = 5.0  # seconds by which this machine's clock may be ahead of the API server's


def name(pod: KubernetesObject) -> str:
    """A pod's name."""
    return str(pod["metadata"]["name"])


def phase(pod: KubernetesObject) -> str:
    """Pending, Running, Succeeded or Failed; a pod without a status is pending."""
    return str(pod.get("status", {}).get("phase", "Pending"))


def has_ended(pod: KubernetesObject) -> bool:
    """Whether a pod has ended for good."""
    return phase(pod) in ("Succeeded", "Failed")


def unschedulable(pod: KubernetesObject) -> str:
    """The reason why the scheduler has no node for a pod; empty otherwise."""
    for condition in pod.get("status", {}).get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition.get("message") or condition.get("reason"))
    return ""


def image_error(pod: KubernetesObject) -> str:
    """The reason why a container's image cannot be pulled; empty without an error so far."""
    for container, reason, message in _waiting(pod):
        if reason in BROKEN_IMAGE:
            fix = "push it, or give the pod's ServiceAccount an imagePullSecret"
            return f"image {container['image']} cannot be pulled: {message}; {fix}"
    return ""


def start_error(pod: KubernetesObject) -> str:
    """The reason why a container that has its image cannot start; empty without an error so far."""
    for _, reason, message in _waiting(pod):
        if reason in BROKEN_POD:
            return f"{name(pod)} cannot start: {message}"
    return ""


def _waiting(pod: KubernetesObject) -> Iterable[tuple[KubernetesObject, str, str]]:
    """All containers, each with the reason and the message of its waiting state."""
    for container in pod.get("status", {}).get("containerStatuses", ()):
        waiting = container.get("state", {}).get("waiting") or {}
        reason = str(waiting.get("reason", ""))
        yield container, reason, str(waiting.get("message") or reason)


def is_dead(pod: KubernetesObject, now: float) -> bool:
    """Whether a deleted pod has outlived its grace period, by this machine's clock: nothing on its node ends it."""
    since = pod["metadata"].get("deletionTimestamp")  # the time at which the grace period ends
    return since is not None and now > seconds(since) + CLOCK_SKEW


def overdue(pods: Iterable[KubernetesObject], now: float) -> tuple[str, ...]:
    """The names of dead pods by this machine's clock: good enough to be shown, not to act on."""
    return tuple(name(pod) for pod in pods if is_dead(pod, now))


def first_pending(pods: Iterable[KubernetesObject]) -> KubernetesObject:
    """The first pending pod, which must exist."""
    return next(pod for pod in pods if phase(pod) == "Pending")


def mount_error(events: Sequence[KubernetesObject]) -> tuple[str, float]:
    """The reason why a pod does not get its volumes or its network, and for how many seconds.

    Args:
        events: all events of the pod, the newest last; a pod that got its volumes has a later event.
    """
    # The kubelet retries a pod whose network could not be set up, and reports SandboxChanged before each try. As the
    # newest event, it would mean that the pod had got past its mounts.
    relevant = [event for event in events if event.get("reason") != "SandboxChanged"]
    failures = [event for event in relevant if event.get("reason") in MOUNT_FAILURES]
    dated = [event for event in failures if event.get("lastTimestamp")]
    if not dated or dated[-1] is not relevant[-1]:
        return "", 0.0
    newest = dated[-1]
    began = min(seconds(event.get("firstTimestamp") or event["lastTimestamp"]) for event in dated)
    reason = re.sub(r"[0-9a-f]{32,}", "...", newest["message"])  # every try has another sandbox
    return reason, seconds(newest["lastTimestamp"]) - began


def death(pods: Iterable[KubernetesObject]) -> str:
    """The reason why a job's pods ended, according to Kubernetes: the first failure's reason, exit code and message."""
    return min(_deaths(pods), default=("", "", ""))[2]


def first_dead(pods: Iterable[KubernetesObject]) -> str:
    """The name of the pod that failed first; others may have failed because of it. Empty if none failed."""
    return min(_deaths(pods), default=("", "", ""))[1]


def _deaths(pods: Iterable[KubernetesObject]) -> Iterable[tuple[str, str, str]]:
    """The time, pod and description of each failure."""
    for pod in pods:
        status = pod.get("status", {})
        if phase(pod) == "Failed" and status.get("reason"):
            # Evicted or preempted: the pod as a whole has a reason but no time. It sorts before the ends of its
            # containers, which only followed from it.
            yield "", name(pod), f"{name(pod)} was ended ({status['reason']}): {status.get('message', '')}"
        for ended in _terminated(pod):
            if ended.get("exitCode"):
                description = f"{name(pod)} ended with exit code {ended['exitCode']} ({ended.get('reason', 'Error')})"
                yield ended.get("finishedAt") or "", name(pod), f"{description} {ended.get('message', '')}".strip()


def out_of_memory(pod: KubernetesObject) -> KubernetesObject | None:
    """The terminated state of a container that was killed out of memory (OOM); None if there is none."""
    return next((ended for ended in _terminated(pod) if ended.get("reason") == "OOMKilled"), None)


def _terminated(pod: KubernetesObject) -> Iterable[KubernetesObject]:
    """The terminated states of containers; for a restarted one, of the time before."""
    for container in pod.get("status", {}).get("containerStatuses", ()):
        ended = container.get("state", {}).get("terminated") or container.get("lastState", {}).get("terminated")
        if ended:
            yield ended


def was_disrupted(pods: Iterable[KubernetesObject]) -> bool:
    """Whether a pod was evicted for a reason outside of it."""
    return any(
        condition["type"] == "DisruptionTarget" and condition["status"] == "True"
        for pod in pods
        for condition in pod.get("status", {}).get("conditions", ())
    )


def memory_limit(pod: KubernetesObject) -> str | None:
    """The memory limit of a pod's first container."""
    limits = pod["spec"]["containers"][0].get("resources", {}).get("limits") or {}
    limit: str | None = limits.get("memory")  # without a limit, an OOM kill is about the node's memory
    return limit
