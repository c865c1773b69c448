"""Following a run in a cluster from outside: what its pods say, what they wait for, and how it ended."""

import time
from collections.abc import Callable, Iterator
from typing import Any

from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from understudy.errors import DONE, STOPPED, UnderstudyError
from understudy.launch.driver import FINAL
from understudy.launch.kube import Away, Kube, Object
from understudy.launch.leftovers import stop
from understudy.launch.sight import Sight, death, holding, look
from understudy.launch.trouble import HOPE


def follow(kube: Kube, name: str, say: Callable[[str], None]) -> int:
    """Say what a run's pods say until the run has ended. A run whose first pod cannot start for a minute is ended.

    Returns:
        The run's exit code.

    Raises:
        UnderstudyError: its pods failed without an answer, or its pod cannot start.
    """
    said: dict[str, int] = {}
    waiting, broken_since = "", 0.0
    while True:
        try:
            job = kube.ask(kube.batch.read_namespaced_job, name, kube.namespace)
            pods = kube.pods(f"batch.kubernetes.io/job-name={name}")
            sight = pending(pods)
            if (found := f"{sight.stage}: {sight.detail}" if sight else "") != waiting:
                waiting = found
                say(waiting or "its pod runs")
            first = not said and job is not None and not job.get("status", {}).get("failed")
            broken_since = (broken_since or time.monotonic()) if sight and sight.broken and first else 0.0
            if sight and broken_since and time.monotonic() - broken_since > HOPE:
                stop(kube, name)
                raise UnderstudyError(f"the run {name} was ended, its pod cannot start: {sight.broken}")
            for pod in sorted(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"])):
                _stream(kube, pod, said, say)
            if job is None:
                say(f"the run {name} was stopped; what was complete is kept")
                return STOPPED
            code = exit_code(job, pods)
            if code is not None:
                return code
        except Away as error:
            say(f"{error}; the run goes on")
        time.sleep(1)


def pending(pods: list[Object]) -> Sight | None:
    """What keeps a run's pod from starting; None when one has started."""
    found = [pod for pod in pods if pod.get("status", {}).get("phase", "Pending") == "Pending"]
    return look({"metadata": {}, "spec": {}}, found, None, time.time()) if found else None


def _stream(kube: Kube, pod: Object, said: dict[str, int], say: Callable[[str], None]) -> None:
    """A pod's new lines; after a lost connection its log is read again, and what is known skipped."""
    name = pod["metadata"]["name"]
    if pod.get("status", {}).get("phase") == "Pending":
        return
    try:
        stream = kube.core.read_namespaced_pod_log(name, kube.namespace, follow=True, _preload_content=False)
        for number, line in enumerate(_lines(stream)):
            if number >= said.get(name, 0):
                said[name] = number + 1
                say(line)
    except (ApiException, HTTPError, OSError):
        return  # the next round asks again, and says so if nobody answers then


def _lines(stream: Any) -> Iterator[str]:
    rest = b""
    for part in stream.stream(amt=None):
        *whole, rest = (rest + part).split(b"\n")
        yield from (line.decode(errors="replace") for line in whole)


def exit_code(job: Object, pods: list[Object]) -> int | None:
    """The exit code of a run that has ended; None while it goes on.

    Raises:
        UnderstudyError: its pods failed without an answer.
    """
    ended = holding(job)
    if "Complete" in ended:
        return DONE
    if "Failed" not in ended:
        return None
    statuses = [status for pod in pods for status in pod.get("status", {}).get("containerStatuses", ())]
    codes = [(status.get("state", {}).get("terminated") or {}).get("exitCode") for status in statuses]
    final = [code for code in codes if code in FINAL]
    if not final:
        raise UnderstudyError(f"the run's pods failed: {death(pods) or 'Kubernetes does not say why'}")
    return int(final[-1])
