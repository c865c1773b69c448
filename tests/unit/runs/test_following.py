import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from urllib3.exceptions import HTTPError

from understudy.errors import DONE, UnderstudyError
from understudy.kube.api import Kube, Refused
from understudy.kube.timeouts import RECOVERY
from understudy.runs import following
from understudy.runs.following import exit_code, follow, pending, with_events


def job(**conditions: str) -> dict[str, Any]:
    return {"status": {"conditions": [{"type": kind, "status": value} for kind, value in conditions.items()]}}


def pod(code: int) -> dict[str, Any]:
    state = {"terminated": {"exitCode": code, "reason": "Error"}}
    return {"metadata": {"name": "p"}, "status": {"containerStatuses": [{"name": "driver", "state": state}]}}


def test_a_run_ends_with_the_exit_code_of_its_last_answer() -> None:
    assert exit_code(job(), [pod(143)]) is None
    assert exit_code(job(Failed="False"), []) is None
    assert exit_code(job(Complete="True"), [pod(143)]) == 0
    assert exit_code(job(Failed="True"), [pod(143), pod(3)]) == 3
    with pytest.raises(UnderstudyError, match="the run's pods failed: p ended with exit code 137"):
        exit_code(job(Failed="True"), [pod(137)])
    deadline_exceeded = {
        "type": "Failed",
        "status": "True",
        "reason": "DeadlineExceeded",
        "message": "Job was active longer than specified deadline",
    }
    with pytest.raises(UnderstudyError, match="the run's pods failed: Job was active longer than specified deadline"):
        exit_code({"status": {"conditions": [deadline_exceeded]}}, [pod(143)])


def test_a_waiting_run_gives_its_reason() -> None:
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}
    status = {"phase": "Pending", "containerStatuses": [{"name": "driver", "image": "i:1", "state": waiting}]}
    sight = pending([{"metadata": {"name": "p"}, "spec": {}, "status": status}])
    assert sight is not None
    assert (sight.stage, sight.detail) == (
        "pulling",
        "image i:1 cannot be pulled: not found; push it, or give the pod's ServiceAccount an imagePullSecret",
    )
    assert pending([{"metadata": {"name": "p"}, "spec": {}, "status": {"phase": "Running"}}]) is None
    assert pending([]) is None


class Reports(Kube):
    """Answers with the events of objects, by name."""

    def __init__(self, **events: list[dict[str, Any]]) -> None:
        self._events = events

    def events(self, kubernetes_object: dict[str, Any]) -> list[dict[str, Any]]:
        if not self._events:
            raise Refused("may not list events")
        return self._events.get(kubernetes_object["metadata"]["name"], [])


STARTED = {"metadata": {"name": "run"}, "status": {"startTime": "2026-01-01T00:00:00Z"}}


def test_a_run_without_a_pod_gives_the_reason() -> None:
    message = 'Error creating: pods "run-x" is forbidden: failed quota: understudy: must specify limits.cpu'
    kube = Reports(run=[{"reason": "FailedCreate", "message": message}])
    sight = with_events(kube, STARTED, [], None)
    assert sight is not None
    assert (sight.detail, sight.broken) == (message, message)
    assert with_events(Reports(other=[]), STARTED, [], None) is None
    assert with_events(Reports(), STARTED, [], None) is None, "without the right to read events, pods give the reason"
    assert with_events(kube, {"metadata": {"name": "run"}}, [], None) is None, "a queue holds it back"
    assert with_events(kube, STARTED, [{"metadata": {"name": "p"}, "status": {"phase": "Running"}}], None) is None


@pytest.mark.parametrize(
    "message",
    [
        'Error creating: pods "x" is forbidden: exceeded quota: q, requested: pods=1, used: pods=9, limited: pods=9',
        'Error creating: Internal error occurred: failed calling webhook "mpod.kb.io": connect: connection refused',
        "Error creating: etcdserver: request timed out",
    ],
)
def test_a_refusal_that_passes_does_not_end_a_run(message: str) -> None:
    sight = with_events(Reports(run=[{"reason": "FailedCreate", "message": message}]), STARTED, [], None)
    assert sight is not None
    assert (sight.detail, sight.broken) == (message, "")


def test_a_pod_that_asks_for_more_than_all_of_a_quota_does_not_pass() -> None:
    message = (
        'Error creating: pods "run-x" is forbidden: exceeded quota: q, requested: pods=1,requests.memory=64Gi, '
        "used: pods=0,requests.memory=0, limited: pods=9,requests.memory=32Gi"
    )
    sight = with_events(Reports(run=[{"reason": "FailedCreate", "message": message}]), STARTED, [], None)
    assert sight is not None
    assert sight.broken == message


@pytest.mark.parametrize(("lasts", "reported"), [(10, False), (40, True)])
def test_a_run_whose_pod_has_no_volumes_gives_the_reason_once_they_are_late(lasts: int, reported: bool) -> None:
    times = {"firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": f"2026-01-01T00:00:{lasts}Z"}
    kube = Reports(p=[{"reason": "FailedMount", "message": "mount failed: exit status 32", **times}])
    waits = {"metadata": {"name": "p"}, "spec": {}, "status": {"phase": "Pending"}}
    sight = with_events(kube, STARTED, [waits], pending([waits]))
    assert sight is not None
    assert (sight.detail == "its pod does not start: mount failed: exit status 32") == reported
    assert sight.broken == "", "volumes may come"


def test_a_run_whose_pod_cannot_be_made_is_ended_after_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, ended = [0.0], list[str]()
    monkeypatch.setattr(time, "monotonic", lambda: clock[0] + 1)
    monkeypatch.setattr(time, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    monkeypatch.setattr(following, "stop", lambda kube, name: ended.append(name))

    class Refusing(Reports):
        namespace = "here"
        batch: Any = SimpleNamespace(read_namespaced_job=None)

        def call(self, *_: object, **__: object) -> Any:
            return STARTED

        def pods(self, selector: str) -> list[Any]:
            return []

    reports: list[str] = []
    kube = Refusing(run=[{"reason": "FailedCreate", "message": "Error creating: no such account"}])
    with pytest.raises(UnderstudyError, match="the run run was ended, its pod cannot start: Error creating: no such"):
        follow(kube, "run", reports.append)
    assert reports == ["pending: Error creating: no such account"]
    assert ended == ["run"]
    assert clock[0] > RECOVERY


def test_a_run_whose_node_is_lost_reports_that_it_is_not_replaced() -> None:
    lost = {"metadata": {"name": "p", "deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"nodeName": "n-1"}}
    running = {"metadata": {"name": "q"}, "spec": {"nodeName": "n-2"}, "status": {"phase": "Running"}}
    sight = pending([{**lost, "status": {"phase": "Running"}}])
    assert sight is not None
    assert sight.detail.startswith("node n-1 does not answer, and Kubernetes makes no other pod for the run")
    assert pending([{**lost, "status": {"phase": "Failed"}}, running]) is None


class Run:
    """A run whose pod says line after line, over connections that go silent or break after some bytes."""

    namespace = "here"
    batch = SimpleNamespace(read_namespaced_job=None)

    def __init__(self, lines: list[str], breaks: list[int]) -> None:
        self._log = "".join(f"2026-01-01T00:00:{at:02}.000000000Z {line}\n" for at, line in enumerate(lines))
        self._breaks = breaks
        self.requests: list[dict[str, Any]] = []
        self.core = SimpleNamespace(read_namespaced_pod_log=self._connect)

    def _connect(self, pod: str, namespace: str, **options: Any) -> Any:
        self.requests.append(options)
        return SimpleNamespace(stream=lambda amt: self._bytes())

    def _bytes(self) -> Iterator[bytes]:
        content = self._log.encode()
        if self._breaks:
            yield content[: self._breaks.pop(0)]
            raise HTTPError("read timed out")
        yield content

    def call(self, method: object, *arguments: object, **options: object) -> Any:
        return job(**({} if self._breaks else {"Complete": "True"}))

    def pods(self, selector: str) -> list[Any]:
        meta = {"name": "p", "creationTimestamp": "2026-01-01T00:00:00Z"}
        return [{"metadata": meta, "spec": {}, "status": {"phase": "Running"}}]


def test_a_silent_connection_is_reopened_and_no_line_is_lost_or_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    lines = ["one", "two", "", "four of 4"]
    run, received = Run(lines, breaks=[0, 50, 80]), list[str]()
    assert follow(cast(Kube, run), "run", received.append) == DONE
    assert received == lines
    assert [options["_request_timeout"][1] for options in run.requests] == [following.SILENCE] * 4
    assert ["since_seconds" in options for options in run.requests] == [False, False, True, True]
    assert all(time.time() - 1_767_225_600 < options["since_seconds"] for options in run.requests[2:])
