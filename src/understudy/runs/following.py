"""Following a run in a cluster from outside: its pods' logs, the reasons for waiting, and its exit code."""

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from understudy.errors import DONE, STOPPED, UnderstudyError
from understudy.kube.api import SECONDS, Away, Kube, Refused
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


def follow(kube: Kube, name: str, say: Callable[[str], None]) -> int:
    """Forward the logs of a run's pods until it has ended. A run whose first pod cannot start for a minute is ended.

    Returns:
        The run's exit code.

    Raises:
        UnderstudyError: its pods failed without a final exit code, or its pod cannot start.
    """
    said: dict[str, str] = {}
    waiting, broken_since = "", 0.0
    while True:
        try:
            job = kube.call(kube.batch.read_namespaced_job, name, kube.namespace)
            pods = kube.pods(f"batch.kubernetes.io/job-name={name}")
            state = with_events(kube, job, pods, pending(pods))
            found = f"{state.stage}: {state.detail}" if state else ""
            if found != waiting:
                waiting = found
                say(waiting or "its pod is running")
            first = not said and job is not None and not job.get("status", {}).get("failed")
            broken_since = (broken_since or time.monotonic()) if state and state.broken and first else 0.0
            if state and broken_since and time.monotonic() - broken_since > RECOVERY:
                stop(kube, name)
                raise UnderstudyError(f"the run {name} was ended, its pod cannot start: {state.broken}")
            for pod in sorted(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"])):
                _stream(kube, pod, said, say)
            if job is None:
                kept = "finished steps and checkpoints are kept; run the recipe again to resume"
                say(f"the run {name} was stopped; {kept}")
                return STOPPED
            code = exit_code(job, pods)
            if code is not None:
                return code
        except Away as error:
            say(f"{error}; the run continues")
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
            said = [one for one in kube.events(job) if one.get("reason") == "FailedCreate"]
            return _pod_refused(said[-1]["message"]) if said else state
        if state and state.stage == "pulling" and not state.broken:
            why, lasted = mount_error(kube.events(first_pending(pods)))
            return replace(state, detail=f"its pod does not start: {why}") if lasted > SETTLING else state
    except Refused:
        return state  # an older Role understudy-user lacks permission for events
    return state


def _pod_refused(why: str) -> JobState:
    """The state of a run without a pod. Kubernetes retries, which helps unless the fault is in the run itself."""
    passes = any(words in why for words in PASSING) and not _is_beyond_its_quota(why)
    return JobState("pending", why, broken="" if passes else why)


def _is_beyond_its_quota(why: str) -> bool:
    found = re.search(r"requested: (\S+), used: \S+, limited: (\S+)", why)
    if not found:
        return False
    asked, limits = _amounts(found[1]), _amounts(found[2])
    return any(amount(asked[name]) > amount(limits[name]) for name in asked.keys() & limits.keys())


def _amounts(listed: str) -> dict[str, str]:
    """The amounts in a refusal: requests.cpu=2,requests.memory=1Gi."""
    return dict(one.split("=") for one in listed.split(","))


def _stream(kube: Kube, pod: KubernetesObject, said: dict[str, str], say: Callable[[str], None]) -> None:
    """Forward a pod's new lines. After a lost or silent connection, the log resumes from the last line's time."""
    name = pod["metadata"]["name"]
    if pod.get("status", {}).get("phase") == "Pending":
        return
    last = said.get(name, "")
    since = {"since_seconds": int(max(0.0, time.time() - seconds(last))) + SKEW} if last else {}
    options = {"follow": True, "timestamps": True, "_preload_content": False, "_request_timeout": (SECONDS, SILENCE)}
    try:
        for line in _lines(kube.core.read_namespaced_pod_log(name, kube.namespace, **options, **since)):
            at, _, text = line.partition(" ")
            if at > last:
                said[name] = at
                say(text)
    except (ApiException, HTTPError, OSError):
        return  # the next round tries again, and reports an outage


def _lines(stream: Any) -> Iterator[str]:
    rest = b""
    for part in stream.stream(amt=None):
        *whole, rest = (rest + part).split(b"\n")
        yield from (line.decode(errors="replace") for line in whole)


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
        late = ended["Failed"].get("reason") == "DeadlineExceeded"
        why = (not late and death(pods)) or ended["Failed"].get("message") or "Kubernetes gives no reason"
        raise UnderstudyError(f"the run's pods failed: {why}")
    return final[-1]
