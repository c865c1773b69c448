"""What is wrong with a job that goes on: why it will not end well, once it had its time to mend."""

import math
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from understudy.errors import FAILED
from understudy.jobs import attempts
from understudy.jobs.heartbeat import beats
from understudy.jobs.outcome import Outcome
from understudy.jobs.specification import JobSpec
from understudy.launch.kubernetes import elastic
from understudy.launch.kubernetes.api import Kube, Object, Refused
from understudy.launch.kubernetes.settings import REQUIRED, STORE
from understudy.launch.kubernetes.starts import Starts
from understudy.launch.kubernetes.status import (
    Sight,
    death,
    first_pending,
    has_its_kind,
    never_fits,
    was_disrupted,
    without_volumes,
)
from understudy.recipe import Resources

STARTS = 10  # of a job that gets no further
HOPE = 60.0  # seconds in which what is broken may mend
UNMOUNTED = 600.0  # the same for volumes: a disk that was on a dead node is taken from it after six minutes
SCALING = {"TriggeredScaleUp", "Nominated"}  # the cluster autoscaler's event, and Karpenter's
NO_NODE_NOW = ("in backoff after failed scale-up", "max cluster")
"""Why the cluster autoscaler may not ask now whether a kind of node would do."""
ALL_NODES = "max node group size reached"
"""The same of a kind that has all its nodes: these tell, once they are there."""


class Trouble:
    """Looks for what is wrong with one job, and remembers what was forgiven.

    Args:
        spec: the job.
        resources: what the recipe gives to it.
        since: when the run began (Unix seconds); what went wrong before does not count.
        kube: the cluster.
        say: told what is forgiven, and what may be wrong.
    """

    def __init__(
        self, spec: JobSpec, resources: Resources, since: float, kube: Kube, say: Callable[[str], None]
    ) -> None:
        self._spec, self._resources, self._since, self._kube, self._say = spec, resources, since, kube, say
        self._folder = Path(spec.folder)
        self._starts = Starts(spec.least)
        self._forgiven = 0
        self._scales = False
        self._went_on, self._unwatched = -math.inf, 0
        self._told: set[str] = set()

    def explained(self, sight: Sight, pods: list[Object], waited: float) -> Sight:
        """A sight with what only events tell: why a pod gets no volumes, and whether that has been so for too long.

        Args:
            sight: where the job stands.
            pods: its pods.
            waited: seconds for which it has stood there.
        """
        if elastic.goes_on(self._spec, pods):
            self._went_on = time.monotonic()
        if sight.stage != "pulling" or sight.broken or waited < HOPE:
            return sight
        pod = first_pending(pods)
        why, lasted = without_volumes(self._kube.events(pod))
        name = pod["metadata"]["name"]
        if not why:
            return sight
        if min(lasted, time.monotonic() - self._went_on) < UNMOUNTED:
            return replace(sight, detail=f"{name} does not start yet: {why}")
        why = f"{name} did not start for {lasted / 60:.0f} minutes: {why}"
        return replace(sight, detail=why, broken=why)

    def found(self, job: Object, sight: Sight, pods: list[Object], waited: float) -> Outcome | None:
        """The verdict on a job that will not end well; None for one that may.

        Args:
            job: the PyTorchJob.
            sight: where the job stands.
            pods: its pods.
            waited: seconds for which it has stood there.
        """
        text = (
            self._out_of_memory(pods)
            or self._too_many_failures()
            or self._gets_nowhere(sight, pods)
            or (self._hopeless(job, sight, pods) if waited >= HOPE else None)
        )
        return Outcome(FAILED, text) if text else None

    def _out_of_memory(self, pods: list[Object]) -> str | None:
        for pod in pods:
            for container in pod.get("status", {}).get("containerStatuses", ()):
                ended = container.get("state", {}).get("terminated") or container.get("lastState", {}).get("terminated")
                if ended and ended.get("reason") == "OOMKilled":
                    limit = _memory_limit(pod) or "what its node has"
                    return (
                        f"{pod['metadata']['name']} ran out of memory (OOMKilled, exit code {ended['exitCode']}; its "
                        f"limit is {limit}). Raise {self._spec.section}.memory, or take a smaller batch_size, a "
                        "larger gradient_accumulation_steps or strategy fsdp."
                    )
        return None

    def tell_failures(self) -> list[Outcome]:
        """How ranks of this run failed, all of them; those that are new are told."""
        failed = [outcome for outcome in attempts.failures(self._folder) if outcome.at > self._since]
        for outcome in failed[self._forgiven :]:
            self._say(f"restarting at the last checkpoint: {outcome.message}")
        self._forgiven = len(failed)
        return failed

    def _too_many_failures(self) -> str | None:
        """Killed ranks are forgiven some times; what is nobody's fault, always."""
        killed = [outcome for outcome in self.tell_failures() if outcome.kind == "killed"]
        if len(killed) <= self._resources.max_restarts:
            return None
        times = f"{len(killed)} times, {self._spec.section}.max_restarts allows {self._resources.max_restarts}"
        return f"ranks were killed {times}; the last: {killed[-1].message}"

    def _gets_nowhere(self, sight: Sight, pods: list[Object]) -> str | None:
        """Whatever it is that ends the ranks each time: started again and again without a further step, it stays."""
        if sight.stage == "queued" or was_disrupted(pods):
            self._starts.forgive()
        said = beats(self._folder, range(self._spec.world_size)).values()
        if self._starts.count(pods, max((beat.step for beat in said), default=-1)) <= STARTS:
            return None
        last = attempts.failures(self._folder)[-1:]
        why = last[0].message if last else death(pods) or "its ranks did not say why they ended"
        return f"the job was started {STARTS} times and got no further: {why}"

    def unwatched(self) -> Outcome | None:
        """The verdict on a job whose ranks left since they saw no launcher, though there is one; None at first."""
        self._unwatched += 1
        if self._unwatched <= STARTS:
            return None
        text = (
            f"its ranks left {self._unwatched} times since they saw no launcher for {self._spec.launcher_timeout:.0f} s"
        )
        return Outcome(
            FAILED, f"{text}; does the volume show them what the launcher writes? Or raise `launcher_timeout`"
        )

    def _hopeless(self, job: Object, sight: Sight, pods: list[Object]) -> str | None:
        """What will not mend by itself, now that it had its time."""
        if sight.broken:
            return sight.broken
        if sight.stage == "queued" and is_never_admitted(sight.detail):
            return f"the queue can never admit this job. {sight.detail}"
        if sight.stage == "pending":
            return self._never_scheduled(pods) if pods else self._without_pods(job)
        return None

    def _without_pods(self, job: Object) -> str | None:
        refusals = [event["message"] for event in self._kube.events(job) if event.get("reason") == "FailedCreatePod"]
        if refusals:
            fix = f"; correct {self._spec.section}.priority" if "PriorityClass" in refusals[-1] else ""
            return f"the cluster refuses the job's pods: {refusals[-1]}{fix}"
        self._say_once("pending: still no pods; does the training operator run?")
        return None

    def _never_scheduled(self, pods: list[Object]) -> str | None:
        said = list(_events(self._kube, pods))
        knows_a_node = any(event.get("reason") in {*SCALING, "FailedScaleUp"} for event in said)
        self._scales = self._scales or knows_a_node  # events are forgotten after an hour
        words = [event["message"] for event in said if event.get("reason") == "NotTriggerScaleUp"][-1:]
        if self._scales or any(reason in word for word in words for reason in NO_NODE_NOW):
            return None
        try:
            nodes = self._open_to(pods[0])
            if any(ALL_NODES in word for word in words) and not has_its_kind(pods[0], nodes):
                return None
            why = never_fits(pods[0], nodes)
        except Refused:
            self._say_once("pending: whether a node could ever take it is not known: this account may not list nodes")
            return None
        return f"this can never be scheduled: {why}; correct {self._spec.section} or its pool" if why else None

    def _open_to(self, pod: Object) -> list[Object]:
        """The nodes that a pod may go to: all, or where one node has the store, that node."""
        nodes = self._kube.nodes()
        for term in pod["spec"].get("affinity", {}).get("podAffinity", {}).get(REQUIRED, ()):
            claim = (term.get("labelSelector") or {}).get("matchLabels", {}).get(STORE)
            others = self._kube.pods(f"{STORE}={claim}") if claim else []
            there = {other["spec"].get("nodeName") for other in others if other["status"].get("phase") == "Running"}
            if there:
                nodes = [node for node in nodes if node["metadata"]["name"] in there]
        return nodes

    def _say_once(self, text: str) -> None:
        """What is seen at every look is told at the first one."""
        if text not in self._told:
            self._told.add(text)
            self._say(text)


def is_never_admitted(said: str) -> bool:
    """Whether no flavor could ever take a job: Kueue names all that it tried, and one may only be in use now."""
    in_use = set(re.findall(r"insufficient unused quota for \S+ in flavor ([^,]+)", said))
    too_small = set(re.findall(r"insufficient quota for \S+ in flavor ([^,]+), request > maximum capacity", said))
    misnamed = re.search(r"doesn't match ClusterQueue selector|(Local|Cluster)Queue \S+ doesn't exist", said)
    return misnamed is not None or ("maximum capacity" in said and in_use <= too_small)


def _memory_limit(pod: Object) -> str | None:
    limits = pod["spec"]["containers"][0].get("resources", {}).get("limits") or {}
    found: str | None = limits.get("memory")
    return found


def is_scaling(kube: Kube, pods: list[Object]) -> bool:
    """Whether a cluster autoscaler is at work for these pods."""
    return any(event.get("reason") in SCALING for event in _events(kube, pods))


def _events(kube: Kube, pods: list[Object]) -> Iterator[Object]:
    return (event for pod in pods for event in kube.events(pod))
