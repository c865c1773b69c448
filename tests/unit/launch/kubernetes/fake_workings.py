"""A fake cluster's controllers, run every second: the operator, the scheduler, Kueue, nodes, and the ranks in pods.

It is as hostile as clusters were seen to be: a PyTorchJob is Succeeded as soon as one worker is, pods of a deleted job
have their grace period and keep their names, deleted pods on a dead node stay for ever.
"""

from datetime import UTC, datetime

from tests.unit.launch.kubernetes.fake_ranks import EVICTED, Ranks, end, is_running, uid
from understudy.kube.kind import PYTORCHJOB, JobKind
from understudy.kube.objects import KubernetesObject

QUEUE = "kueue.x-k8s.io/queue-name"
NODE_LOST = 80.0  # seconds from a node's death until its pods are deleted: noticed after 50, tolerated for 30
GPU = "nvidia.com/gpu"


class Workings:
    """A cluster's state and its changes.

    Args:
        ranks: the processes of the pods.
        nodes: how many there are; each has room for one pod.
        kind: the kind of its jobs.
    """

    def __init__(self, ranks: Ranks, nodes: int = 2, kind: JobKind = PYTORCHJOB) -> None:
        self.ranks, self.kind = ranks, kind
        self.now = 0.0
        self.created: dict[str, KubernetesObject] = {}
        self.pods_made: dict[str, KubernetesObject] = {}
        self.nodes_up = {f"node-{number}": True for number in range(nodes)}
        self.died_at: dict[str, float] = {}
        self.quota: int = 10**6
        self.free_quota: int = 10**6
        self.preempted: set[str] = set()
        self.reported: dict[str, list[KubernetesObject]] = {}
        self.waiting: dict[str, str] | None = None
        """Why containers do not start: reason and message."""
        self.unmounted = ""
        self.pods_refused = ""
        self.has_operator = True
        self.away_until = -1.0
        """Until then the API server answers neither launchers nor controllers."""
        self.skew = 0.0
        """By how much the API server's clock differs."""
        self._uids = 0

    def pass_seconds(self, seconds: float) -> None:
        """Let time pass; the cluster and the ranks work."""
        end_of_it = self.now + seconds
        while self.now < end_of_it:
            next_second = float(int(self.now) + 1)
            if next_second > end_of_it:
                self.now = end_of_it
                return
            self.now = next_second
            self._work()

    def _work(self) -> None:
        """A second of everything that works in a cluster."""
        if self.now >= self.away_until:
            self._control()
        for job in list(self.created.values()):
            self.ranks.tick(uid(job), self._reachable(job), self._size_to_wait_for(job), self.now)
        for pod in self.pods_made.values():
            if not self._owned(pod) and is_running(pod) and self._is_up(pod):
                end(pod, EVICTED)

    def _control(self) -> None:
        """Controllers that use the API server: deletions, admission, the operator, the scheduler."""
        for name, job in list(self.created.items()):
            if "deletionTimestamp" in job["metadata"]:
                del self.created[name]
        self._remove_pods()
        self._admit()
        if self.has_operator:
            for job in list(self.created.values()):
                self._operate(job)
        self._schedule()

    def _owned(self, pod: KubernetesObject) -> bool:
        return any(uid(job) == pod["metadata"]["ownerReferences"][0]["uid"] for job in self.created.values())

    def _pods_of(self, job: KubernetesObject) -> list[KubernetesObject]:
        return [pod for pod in self.pods_made.values() if pod["metadata"]["ownerReferences"][0]["uid"] == uid(job)]

    def _reachable(self, job: KubernetesObject) -> list[KubernetesObject]:
        """A job's pods for its ranks: one on a dead node does nothing, and the others hang."""
        pods = self._pods_of(job)
        attempt = self.ranks.attempts.get(uid(job))
        if attempt and any(uid(pod) in attempt.ranks and not self._is_up(pod) for pod in pods):
            attempt.hangs = True
        cut_off = [{**pod, "status": {"phase": "Unknown"}} for pod in pods if not self._is_up(pod)]
        return [pod for pod in pods if self._is_up(pod)] + cut_off

    def _is_up(self, pod: KubernetesObject) -> bool:
        node = pod["spec"].get("nodeName")
        return node is None or self.nodes_up.get(node, False)

    def _size(self, job: KubernetesObject) -> int:
        if self.kind is PYTORCHJOB:
            return int(job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"])
        return int(job["spec"]["trainer"]["numNodes"])

    def _size_to_wait_for(self, job: KubernetesObject) -> int:
        """How many pods its ranks wait for: with a range, those that found a node."""
        scheduled = [pod for pod in self._pods_of(job) if "nodeName" in pod["spec"]]
        least = self.ranks.spec.min_nodes
        return self._size(job) if least == self.ranks.spec.nodes else max(least, len(scheduled))

    def _operate(self, job: KubernetesObject) -> None:
        """The operator: makes pods, and says how the job ended."""
        pods = self._pods_of(job)
        if self._has_ended(job) or self.kind.is_suspended(job):
            for pod in pods:
                self._terminate(pod)
            return
        codes = [self._exit_code(pod) for pod in pods]
        done, failed = codes.count(0), [code for code in codes if code]
        if done and (self.kind is PYTORCHJOB or done == self._size(job)):
            self._conclude(job, self.kind.succeeded, "the job is successfully completed")
        elif any(code < 128 for code in failed):
            self._conclude(job, "Failed", f"the job is failed because {len(failed)} replica(s) failed")
        elif failed:
            message = f"{job['metadata']['name']} is restarting because {len(failed)} Worker replica(s) failed"
            self._set(job, "Restarting", message)
            for pod in pods:
                self._terminate(pod)
        elif len(pods) > self._size(job):
            for pod in pods[self._size(job) :]:
                self._terminate(pod)
        else:
            self._make_pods(job, pods)

    def _make_pods(self, job: KubernetesObject, pods: list[KubernetesObject]) -> None:
        if self.pods_refused:
            self.report(uid(job), self.kind.refusals[0], self.pods_refused)
            return
        name = job["metadata"]["name"]
        middle = "worker" if self.kind is PYTORCHJOB else "node-0"
        for number in range(self._size(job)):
            pod = f"{name}-{middle}-{number}"
            if pod not in self.pods_made:
                self.pods_made[pod] = self._new_pod(pod, job)
        if len(pods) == self._size(job) and all(is_running(pod) for pod in pods):
            self._set(job, "Running", "the job is running")
            self._unset(job, "Restarting")

    def _new_pod(self, name: str, job: KubernetesObject) -> KubernetesObject:
        labels = {self.kind.pod_label: job["metadata"]["name"]}
        meta = {"name": name, "uid": self._uid(), "labels": labels, "ownerReferences": [{"uid": uid(job)}]}
        resources = {"requests": {GPU: str(self.ranks.spec.processes)}, "limits": {"memory": "1Gi"}}
        return {"metadata": meta, "spec": {"containers": [{"resources": resources}]}, "status": {"phase": "Pending"}}

    def _schedule(self) -> None:
        """The scheduler and the nodes: a pod that waits gets a node, and a second later it runs."""
        for pod in self.pods_made.values():
            if pod["status"]["phase"] != "Pending" or "deletionTimestamp" in pod["metadata"]:
                continue
            if "nodeName" in pod["spec"]:
                self._start(pod)
                continue
            used = {pod["spec"].get("nodeName") for pod in self.pods_made.values()}
            free = [node for node, up in self.nodes_up.items() if up and node not in used]
            if free and int(pod["spec"]["containers"][0]["resources"]["requests"][GPU]) <= 1:
                pod["spec"]["nodeName"] = free[0]
                pod["status"]["conditions"] = []
            else:
                why = f"0/{len(self.nodes_up)} nodes are available: Insufficient {GPU}"
                pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "message": why}]

    def _start(self, pod: KubernetesObject) -> None:
        if self.waiting:
            pod["status"]["containerStatuses"] = [{"image": "i:1", "state": {"waiting": self.waiting}}]
        elif self.unmounted:
            self.report(uid(pod), "FailedMount", self.unmounted)
        elif self._is_up(pod):
            pod["status"] = {"phase": "Running", "conditions": []}

    def _remove_pods(self) -> None:
        """Delete pods of deleted jobs and dead nodes; deleted ones go when they have ended, if their node is up."""
        for name, pod in list(self.pods_made.items()):
            node = pod["spec"].get("nodeName")
            if not self._owned(pod) or self.now - self.died_at.get(node, self.now) > NODE_LOST:
                self._terminate(pod)
            since = pod["metadata"].get("deleted")
            if since is None or not self._is_up(pod):
                continue
            if not is_running(pod) or self.now - since > pod["metadata"]["deletionGracePeriodSeconds"]:
                del self.pods_made[name]

    def _terminate(self, pod: KubernetesObject) -> None:
        if "deletionTimestamp" not in pod["metadata"]:
            grace = self.ranks.spec.resources.termination_grace_period
            pod["metadata"] |= {"deletionTimestamp": self.stamp(), "deletionGracePeriodSeconds": grace}
            pod["metadata"]["deleted"] = self.now

    def _admit(self) -> None:
        """Kueue: a job that has a queue waits until there is quota for it."""
        for job in self.created.values():
            if QUEUE not in job["metadata"]["labels"]:
                continue
            may = self._size(job) <= min(self.quota, self.free_quota) and uid(job) not in self.preempted
            if not self._has_ended(job):
                self._suspend(job, not may)

    def _suspend(self, job: KubernetesObject, value: bool) -> None:
        parent = job["spec"]
        for key in self.kind.suspend[:-1]:
            parent = parent.setdefault(key, {})
        parent[self.kind.suspend[-1]] = value

    def _conclude(self, job: KubernetesObject, condition: str, message: str) -> None:
        self._set(job, condition, message)
        self._unset(job, "Running")

    def _set(self, job: KubernetesObject, condition: str, message: str) -> None:
        self._unset(job, condition)
        job["status"]["conditions"].append({"type": condition, "status": "True", "message": message})

    def _unset(self, job: KubernetesObject, condition: str) -> None:
        job["status"]["conditions"] = [entry for entry in job["status"]["conditions"] if entry["type"] != condition]

    def _has_ended(self, job: KubernetesObject) -> bool:
        return bool({entry["type"] for entry in job["status"]["conditions"]} & {"Failed", self.kind.succeeded})

    @staticmethod
    def _exit_code(pod: KubernetesObject) -> int | None:
        for container in pod["status"].get("containerStatuses", ()):
            if "terminated" in container["state"]:
                return int(container["state"]["terminated"]["exitCode"])
        return None

    def _uid(self) -> str:
        self._uids += 1
        return str(self._uids)

    def report(self, object_uid: str, reason: str, message: str) -> None:
        """Add an event, or repeat one."""
        events = self.reported.setdefault(object_uid, [])
        first = next((event["firstTimestamp"] for event in events if event["message"] == message), self.stamp())
        events[:] = [event for event in events if event["message"] != message]
        times = {"firstTimestamp": first, "lastTimestamp": self.stamp()}
        events.append({"reason": reason, "message": message, **times})

    def delete_pod_as_somebody(self, name: str) -> None:
        """Somebody deletes a pod."""
        self._terminate(self.pods_made[name])

    def delete_jobs_as_somebody(self) -> None:
        """Somebody deletes all jobs."""
        for job in self.created.values():
            job["metadata"]["deletionTimestamp"] = self.stamp()

    def lacks_quota(self) -> bool:
        """Whether a job waits for quota."""
        return any(self.kind.is_suspended(job) for job in self.created.values())

    def lacks_nodes(self) -> bool:
        """Whether there are too few nodes for a job, or others' pods on them."""
        return any(self._size(job) > sum(self.nodes_up.values()) for job in self.created.values())

    def stamp(self) -> str:
        """What time it is, as Kubernetes writes it."""
        return datetime.fromtimestamp(10**9 + self.now + self.skew, UTC).isoformat()

    def kill_node(self, name: str) -> None:
        """A node dies: its pods do nothing any more, and are still there."""
        self.nodes_up[name] = False
        self.died_at[name] = self.now

    def revive_node(self, name: str) -> None:
        """It comes back; pods on it that were deleted meanwhile end."""
        self.nodes_up[name] = True
        self.died_at.pop(name, None)

    def running(self) -> list[KubernetesObject]:
        """Pods that run, the first worker first."""
        return [pod for _, pod in sorted(self.pods_made.items()) if is_running(pod)]
