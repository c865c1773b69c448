"""A cluster in memory: an API server with the methods of api.Kube, and a clock that is moved by hand."""

import copy
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from tests.unit.launch.kubernetes.fake_ranks import Ranks, uid
from tests.unit.launch.kubernetes.fake_workings import GPU, Workings
from understudy.kube.api import Kube, Refused, Unavailable
from understudy.kube.identity import KEY
from understudy.kube.kind import PYTORCHJOB, JobKind
from understudy.kube.objects import KubernetesObject


class FakeCluster(Workings, Kube):
    """One namespace; arguments as of Workings."""

    def __init__(self, ranks: Ranks, nodes: int = 2, kind: JobKind = PYTORCHJOB) -> None:
        Workings.__init__(self, ranks, nodes, kind)
        self.namespace, self.batch = "here", SimpleNamespace(read_namespaced_job=None)
        self.owner: KubernetesObject | None = {"metadata": {"uid": "run"}, "spec": {}}
        self.loses_answers = False
        self.forbidden: set[str] = set()
        self.submitted: list[str] = []
        self.deleted: list[str] = []
        self.holder: object = None
        """Who has the lease."""
        self.acting: object = None
        """Who asks now."""
        self.told_events: dict[str, KubernetesObject] = {}
        """Events that launchers wrote, by name."""
        self.policies: dict[str, KubernetesObject] = {"ranks": {}}
        self.slips: list[str] = []
        """Calls that no launcher may make."""
        self.after_answer: Callable[[], None] | None = None
        """Called after each answered request."""

    def _answer(self, request: str) -> None:
        if self.now < self.away_until:
            raise Unavailable("the API server does not answer (timeout)")
        if request in self.forbidden:
            raise Refused(f"a permission is missing: {request} is forbidden")

    def _answered(self) -> None:
        if self.after_answer:
            happens, self.after_answer = self.after_answer, None
            happens()

    def _change(self, request: str) -> None:
        self._answer(request)
        if self.acting is not self.holder:
            self.slips.append("a launcher that has lost its lease changes something")

    def _lose_answer(self) -> None:
        if self.loses_answers:
            self.loses_answers = False
            raise Unavailable("the API server does not answer (connection reset)")

    def call(self, method: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """The owner of the launcher's pod, and no other object."""
        self._answer("jobs")
        return copy.deepcopy(self.owner)

    def job(self, kind: JobKind, name: str) -> KubernetesObject | None:
        """A training job."""
        self._answer(kind.plural)
        copied = copy.deepcopy(self.created.get(name))
        self._answered()
        return copied

    def jobs(self, kind: JobKind, selector: str) -> list[KubernetesObject]:
        """Training jobs of a key."""
        self._answer(kind.plural)
        label, _, value = selector.partition("=")
        copies = [copy.deepcopy(job) for job in self.created.values() if job["metadata"]["labels"].get(label) == value]
        self._answered()
        return copies

    def create_event(self, event: KubernetesObject) -> None:
        """Report something of an object; an event of this name says it once."""
        self._answer("create events")
        self.told_events.setdefault(event["metadata"]["name"], event)

    def create_job(self, kind: JobKind, job: KubernetesObject) -> KubernetesObject | None:
        """Submit a training job; one of the same name that is there already is as good."""
        self._answer("create")
        self._change(kind.plural)
        name, is_new = job["metadata"]["name"], job["metadata"]["name"] not in self.created
        if is_new:
            self.created[name] = {**copy.deepcopy(job), "status": {"conditions": []}}
            self.created[name]["metadata"] |= {"uid": self._uid(), "resourceVersion": "1"}
            self.submitted.append(name)
            if len(self.live_jobs(job["metadata"]["labels"][KEY])) > 1:
                self.slips.append("two jobs do the same work")
            if not kind.replaces_pods and any(pod.startswith(f"{name}-") for pod in self.pods_made):
                self._conclude(self.created[name], "Failed", "a JobSet of this name is still there, and has failed")
        self._lose_answer()
        return copy.deepcopy(self.created[name]) if is_new else None

    def has_policy(self, name: str) -> bool:
        """Whether the namespace has a NetworkPolicy of this name."""
        self._answer("networkpolicies")
        return name in self.policies

    def create_policy(self, policy: KubernetesObject) -> None:
        """Make a NetworkPolicy; one of the same name that is there already is as good."""
        self._answer("create")
        self._change("networkpolicies")
        self.policies.setdefault(policy["metadata"]["name"], copy.deepcopy(policy))
        self._lose_answer()

    def change_job(self, kind: JobKind, name: str, patch: KubernetesObject) -> None:
        """Have a PyTorchJob ask for another number of nodes."""
        self._change(kind.plural)
        workers = self.created[name]["spec"]["pytorchReplicaSpecs"]["Worker"]
        workers["replicas"] = patch["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"]
        self._lose_answer()

    def delete_job(self, kind: JobKind, name: str) -> None:
        """Delete a training job; its pods go after it."""
        self._change(kind.plural)
        if name in self.created:
            self.created[name]["metadata"]["deletionTimestamp"] = self.stamp()
            self.deleted.append(name)
        self._lose_answer()

    def pods(self, selector: str) -> list[KubernetesObject]:
        """Pods with a label."""
        self._answer("pods")
        label, _, value = selector.partition("=")
        return [copy.deepcopy(pod) for pod in self.pods_made.values() if pod["metadata"]["labels"].get(label) == value]

    def delete_pod(self, name: str, grace: int | None = None) -> None:
        """Delete a pod; with a grace of 0 it is gone at once."""
        self._change("pods")
        if name in self.pods_made:
            self._terminate(self.pods_made[name])
            if grace == 0 and (self.kind.replaces_pods or not self._owned(self.pods_made[name])):
                del self.pods_made[name]  # a pod that a Job counts on has its finalizer
        self._lose_answer()

    def log(self, pod: str, lines: int) -> list[str]:
        """A pod's log."""
        return [f"{pod}: the last words"] if pod in self.pods_made else []

    def workload_of(self, job: KubernetesObject) -> KubernetesObject | None:
        """Why Kueue lets a job wait."""
        self._answer("workloads")
        size = self._size(job)
        message = f"insufficient unused quota for {GPU} in flavor gpu, {size - self.free_quota} more needed"
        if size > self.quota:
            limit = f"request > maximum capacity ({size} > {self.quota})"
            message = f"insufficient quota for {GPU} in flavor gpu, {limit}"
        conditions = [{"type": "QuotaReserved", "status": "False", "message": message}]
        if uid(job) in self.preempted:
            message = "Preempted to accommodate a workload of higher priority"
            conditions.append({"type": "Evicted", "status": "True", "message": message})
        return {"spec": {"queueName": "gpu"}, "status": {"conditions": conditions}}

    def events(self, reported_object: KubernetesObject) -> list[KubernetesObject]:
        """The events of an object."""
        self._answer("events")
        return list(self.reported.get(uid(reported_object), ()))

    def nodes(self) -> list[KubernetesObject]:
        """All nodes: each has room for one rank."""
        self._answer("nodes")
        return [{"metadata": {"name": name}, "status": {"allocatable": {GPU: "1"}}} for name in self.nodes_up]

    def live_jobs(self, key: str) -> list[str]:
        """The names of jobs of a key that have not ended and are not being deleted."""
        jobs = [job for job in self.created.values() if job["metadata"]["labels"][KEY] == key]
        going = [job for job in jobs if not self._has_ended(job) and "deletionTimestamp" not in job["metadata"]]
        return [job["metadata"]["name"] for job in going]
