"""Following a run in a cluster from outside: its pods' logs, the reasons for waiting, and its exit code."""

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from understudy.errors import DONE, STOPPED, UnderstudyError
from understudy.kube.api import SECONDS, Kube, Refused, Unavailable
from understudy.kube.job_state import JobState, state_of, true_conditions
from understudy.kube.objects import KubernetesObject
from understudy.kube.pods import death, first_pending, is_dead, mount_error, overdue
from understudy.kube.quantities import amount, seconds
from understudy.kube.timeouts import RECOVERY
from understudy.runs.orphans import pod_exit_code, stop
from understudy.runs.submission import FINAL

SILENCE = 60.0  # seconds without a line after which a connection may have been dropped on its way
SETTLING = 20.0  # seconds in which volumes usually mount; a run's recipe is created only after its Job
SKEW = 300  # seconds by which this machine's clock and a node's may differ
PASSING = (
    "exceeded quota",
    "failed calling webhook",
    "timed out",
    "deadline exceeded",
    "etcdserver",
    "connection refused",
)
"""Messages of refusals that may pass within a minute; a quota too, unless the request exceeds all of it."""
AWAY = (
    "node {node} does not answer, and Kubernetes makes no other pod for the run while this one may still be alive: "
    "bring the node back, delete its Node object, or stop the run and run the recipe again"
)


def follow(kube: Kube, name: str, report: Callable[[str], None]) -> int:
    """Forward the logs of a run's pods until it has ended. A run whose first pod cannot start for a minute is ended.

    Returns:
        The run's exit code.

    Raises:
        UnderstudyError: its pods failed without a final exit code, or its pod cannot start.
    """
    last_times: dict[str, str] = {}
    waiting, broken_since = "", 0.0
    while True:
        try:
            job = kube.call(kube.batch.read_namespaced_job, name, kube.namespace)
            pods = kube.pods(f"batch.kubernetes.io/job-name={name}")
            state = with_events(kube, job, pods, pending(pods))
            text = f"{state.stage}: {state.detail}" if state else ""
            if text != waiting:
                waiting = text
                report(waiting or "its pod is running")
            first = not last_times and job is not None and not job.get("status", {}).get("failed")
            broken_since = (broken_since or time.monotonic()) if state and state.broken and first else 0.0
            if state and broken_since and time.monotonic() - broken_since > RECOVERY:
                stop(kube, name)
                raise UnderstudyError(f"the run {name} was ended, its pod cannot start: {state.broken}")
            for pod in sorted(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"])):
                _stream(kube, pod, last_times, report)
            if job is None:
                hint = "finished steps and checkpoints are kept; run the recipe again to resume"
                report(f"the run {name} was stopped; {hint}")
                return STOPPED
            code = exit_code(job, pods)
            if code is not None:
                return code
        except Unavailable as error:
            report(f"{error}; the run continues")
        time.sleep(1)


def pending(pods: list[KubernetesObject]) -> JobState | None:
    """The reason why a run's pod does not start, or is not replaced; None when one runs."""
    now = time.time()
    phases = [(pod.get("status", {}).get("phase", "Pending"), pod) for pod in pods]
    waiting = [pod for phase, pod in phases if phase == "Pending"]
    if waiting:
        return state_of({"metadata": {}, "spec": {}}, waiting, dead=overdue(waiting, now))
    running = [pod for phase, pod in phases if phase == "Running"]
    away = {pod["spec"].get("nodeName", "") for pod in running if is_dead(pod, now)}
    return JobState("pending", AWAY.format(node=", ".join(sorted(away)))) if away else None


def with_events(
    kube: Kube, job: KubernetesObject | None, pods: list[KubernetesObject], state: JobState | None
) -> JobState | None:
    """The pending state, with reasons that only events show: why there is no pod, or why its volumes do not mount."""
    try:
        if job and not pods and "startTime" in job.get("status", {}):
            refusals = [event for event in kube.events(job) if event.get("reason") == "FailedCreate"]
            return _pod_refused(refusals[-1]["message"]) if refusals else state
        if state and state.stage == "pulling" and not state.broken:
            reason, lasted = mount_error(kube.events(first_pending(pods)))
            return replace(state, detail=f"its pod does not start: {reason}") if lasted > SETTLING else state
    except Refused:
        return state  # an older Role understudy-user lacks permission for events
    return state


def _pod_refused(reason: str) -> JobState:
    """The state of a run without a pod. Kubernetes retries, which helps unless the fault is in the run itself."""
    passes = any(phrase in reason for phrase in PASSING) and not _is_beyond_its_quota(reason)
    return JobState("pending", reason, broken="" if passes else reason)


def _is_beyond_its_quota(reason: str) -> bool:
    match = re.search(r"requested: (\S+), used: \S+, limited: (\S+)", reason)
    if not match:
        return False
    requested, limits = _amounts(match[1]), _amounts(match[2])
    return any(amount(requested[name]) > amount(limits[name]) for name in requested.keys() & limits.keys())


def _amounts(listed: str) -> dict[str, str]:
    """The amounts in a refusal: requests.cpu=2,requests.memory=1Gi."""
    return dict(item.split("=") for item in listed.split(","))


def _stream(kube: Kube, pod: KubernetesObject, last_times: dict[str, str], report: Callable[[str], None]) -> None:
    """Forward a pod's new lines. After a lost or silent connection, the log resumes from the last line's time."""
    name = pod["metadata"]["name"]
    if pod.get("status", {}).get("phase") == "Pending":
        return
    last = last_times.get(name, "")
    since = {"since_seconds": int(max(0.0, time.time() - seconds(last))) + SKEW} if last else {}
    options = {"follow": True, "timestamps": True, "_preload_content": False, "_request_timeout": (SECONDS, SILENCE)}
    try:
        for line in _lines(kube.core.read_namespaced_pod_log(name, kube.namespace, **options, **since)):
            at, _, text = line.partition(" ")
            if at > last:
                last_times[name] = at
                report(text)
    except (ApiException, HTTPError, OSError):
        return  # the next round tries again, and reports an outage


def _lines(stream: Any) -> Iterator[str]:
    remainder = b""
    for part in stream.stream(amt=None):
        *lines, remainder = (remainder + part).split(b"\n")
        yield from (line.decode(errors="replace") for line in lines)


def exit_code(job: KubernetesObject, pods: list[KubernetesObject]) -> int | None:
    """The exit code of a run that has ended; None while it runs.

    Raises:
        UnderstudyError: its pods failed without a final exit code.
    """
    ended = true_conditions(job)
    if "Complete" in ended:
        return DONE
    if "Failed" not in ended:
        return None
    final = [code for code in map(pod_exit_code, pods) if code in FINAL]
    if not final:
        is_overdue = ended["Failed"].get("reason") == "DeadlineExceeded"
        reason = (not is_overdue and death(pods)) or ended["Failed"].get("message") or "Kubernetes gives no reason"
        raise UnderstudyError(f"the run's pods failed: {reason}")
    return final[-1]
