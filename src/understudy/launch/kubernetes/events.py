"""Kubernetes events about a launcher's actions, for `kubectl describe` of the job and its owner.

An event's name is derived from its text and its occurrence: a repeated action, or a takeover from another launcher,
creates no duplicates. The log has the same lines, so a cluster that rejects events loses no work.
"""

import logging
import os
import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Literal, NamedTuple

from understudy.errors import DONE, STOPPED
from understudy.kube.api import Kube, Refused, Unavailable
from understudy.kube.kind import JobKind
from understudy.kube.objects import KubernetesObject
from understudy.kube.pods import was_disrupted
from understudy.launch.kubernetes.decisions import Adopt, Announce, Decision, DeletePods, Finish, Resize, Restart
from understudy.launch.kubernetes.status import JobStatus
from understudy.store.files import sha256

REPORTER = "understudy-launcher"
LONGEST = 1000  # characters of a message; the API takes 1024
log = logging.getLogger(__name__)


class Event(NamedTuple):
    """An event: the reason in a word, and the message in a sentence."""

    reason: str
    message: str
    type: Literal["Normal", "Warning"] = "Warning"
    occurrence: str = ""
    """Distinguishes it from an event with the same words."""


def events_of(decision: Decision, status: JobStatus) -> Iterator[Event]:
    """Events of a decision, for the job that existed then. The event of a new job follows when it exists."""
    match decision:
        case Adopt(name):
            yield Event("LauncherReplaced", f"{socket.gethostname()} watches {name} now", "Normal")
        case Announce(lines):
            first = len(status.failures) - len(lines)
            for index, line in enumerate(lines, first):
                evicted = status.failures[index].exit_code == STOPPED
                yield Event("Evicted" if evicted else "Restarted", line, occurrence=str(index))
        case DeletePods(dead, _, why):
            deleted = [pod["metadata"]["uid"] for pod in status.pods if pod["metadata"]["name"] in dead]
            yield Event("ForceDeleted" if dead else "PodsDeleted", why, occurrence=" ".join(sorted(deleted)))
        case Resize(_, why):
            yield Event("Resized", why)
        case Finish(outcome) if outcome.exit_code == DONE:
            yield Event("Completed", "every rank has finished, and the result exists", "Normal")
        case Finish(outcome) if outcome.exit_code == STOPPED:
            yield Event("Stopped", outcome.message, "Normal")
        case Finish(outcome):
            yield Event("GaveUp", outcome.message)


def restarted(decision: Restart, status: JobStatus) -> Event:
    """The event of the job that is submitted after this one."""
    reason = "Evicted" if was_disrupted(status.pods) else "Restarted"
    return Event(reason, f"submitted again, to resume from the last checkpoint: {decision.reason}")


class Events:
    """Writes events; one that the cluster rejects is logged, and is no reason to wait or to fail."""

    def __init__(self, kube: Kube, kind: JobKind) -> None:
        self._kube, self._kind = kube, kind
        self._refused = False

    def write_for_job(self, job: KubernetesObject, event: Event) -> None:
        """Write an event for a job."""
        meta = job["metadata"]
        self.write(
            {
                "apiVersion": self._kind.api_version,
                "kind": self._kind.name,
                "name": meta["name"],
                "uid": meta["uid"],
            },
            event,
        )

    def write(self, subject: KubernetesObject, event: Event) -> None:
        """Write an event for an object, by a reference to it."""
        if self._refused:
            return
        try:
            self._kube.create_event(rendered(subject, event, self._kube.namespace))
        except Refused as error:
            self._refused = True
            log.warning("no events are written from now on: %s", error)
        except Unavailable as error:
            log.warning("the event %s of %s was not written: %s", event.reason, subject["name"], error)


def rendered(subject: KubernetesObject, event: Event, namespace: str) -> KubernetesObject:
    """The manifest of an event (core/v1)."""
    message = event.message.strip().partition("\n")[0][:LONGEST]  # further lines are a rank's log
    suffix = sha256("\0".join((subject["uid"], event.reason, message, event.occurrence)).encode())[:16]
    timestamp = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return {
        "metadata": {"name": f"{subject['name']}.{suffix}", "namespace": namespace},
        "involvedObject": {**subject, "namespace": namespace},
        "reason": event.reason,
        "message": message,
        "type": event.type,
        "source": {"component": REPORTER},
        "reportingComponent": REPORTER,
        "reportingInstance": os.environ.get("KFP_POD_NAME") or socket.gethostname(),
        "firstTimestamp": timestamp,
        "lastTimestamp": timestamp,
        "count": 1,
    }
