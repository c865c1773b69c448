"""Orphans: jobs in the cluster whose run has ended, was terminated, or no longer exists.

A terminated KFP run keeps its Workflow and only sets its deadline to 0, so the Workflow's jobs keep occupying GPUs.
And a launcher that was killed cannot end its job.
"""

from dataclasses import dataclass

from understudy.errors import REJECTED
from understudy.kube.api import Kube
from understudy.kube.identity import PARTS, RUN, STEP
from understudy.kube.job_state import state_of, true_conditions
from understudy.kube.kind import KINDS, JobKind
from understudy.kube.objects import KubernetesObject
from understudy.kube.owner_state import ENDED, why_ended
from understudy.kube.pods import is_dead, overdue
from understudy.kube.quantities import seconds
from understudy.runs.submission import CONTAINER

OURS = f"app.kubernetes.io/name={PARTS['app.kubernetes.io/name']}"
YOUNG = 300.0  # seconds in which a job without an owner may still get its launcher


@dataclass(frozen=True)
class ClusterJob:
    """One of the cluster's jobs: a run's driver or a training."""

    name: str
    kind: str
    run: str
    step: str
    stage: str
    age: float
    orphan: str
    """The reason why it is an orphan; empty when it is none."""


def list_jobs(kube: Kube, now: float) -> list[ClusterJob]:
    """All drivers and trainings in the namespace, the oldest first."""
    drivers = kube.call(kube.batch.list_namespaced_job, kube.namespace, label_selector=f"{OURS},{RUN}")["items"]
    pods = kube.pods(f"{OURS},{RUN}")
    jobs = [_driver(job, _pods_of_job(job, pods), now) for job in drivers]
    for kind, job in trainings(kube, OURS):
        job_pods = _pods_of(kind, job, pods)
        stage = state_of(job, job_pods, dead=overdue(job_pods, now), kind=kind).stage
        over = stage in ("succeeded", "failed")
        jobs.append(_cluster_job(job, kind.name, stage, "" if over else _why_orphan(kube, job, now), now))
    return sorted(jobs, key=lambda listed: -listed.age)


def trainings(kube: Kube, selector: str) -> list[tuple[JobKind, KubernetesObject]]:
    """Training jobs with these labels, of every kind in the cluster: its settings may name another kind by now."""
    kinds = [kind for kind in KINDS.values() if kube.has(kind)]
    return [(kind, job) for kind in kinds for job in kube.jobs(kind, selector)]


def remove(kube: Kube, orphan: ClusterJob) -> None:
    """Delete an orphan."""
    kind = next(kind for kind in KINDS.values() if kind.name == orphan.kind)
    kube.delete_job(kind, orphan.name)


def stop(kube: Kube, run: str) -> int:
    """End a run and its trainings, which save a checkpoint within their grace period; ended jobs stay.

    Returns:
        The number of objects deleted.
    """
    chosen = f"{OURS},{RUN}={run[:63]}"
    drivers = kube.call(kube.batch.list_namespaced_job, kube.namespace, label_selector=chosen)["items"]
    drivers = [job for job in drivers if not true_conditions(job).keys() & ENDED]
    going = [(kind, job) for kind, job in trainings(kube, chosen) if not _has_ended(kind, job)]
    for job in drivers:
        name = job["metadata"]["name"]
        kube.call(kube.batch.delete_namespaced_job, name, kube.namespace, propagation_policy="Background")
    for kind, job in going:
        kube.delete_job(kind, job["metadata"]["name"])
    return len(drivers) + len(going)


def _has_ended(kind: JobKind, job: KubernetesObject) -> bool:
    """Whether a training is over."""
    return bool(true_conditions(job).keys() & {kind.succeeded, "Failed"})


def _pods_of_job(job: KubernetesObject, pods: list[KubernetesObject]) -> list[KubernetesObject]:
    """The pods of a run's Job."""
    uid = job["metadata"]["uid"]
    return [pod for pod in pods if uid in _owner_uids(pod)]


def _owner_uids(pod: KubernetesObject) -> list[str]:
    return [owner["uid"] for owner in pod["metadata"].get("ownerReferences", ())]


def _pods_of(kind: JobKind, job: KubernetesObject, pods: list[KubernetesObject]) -> list[KubernetesObject]:
    """The pods of a training; between a TrainJob and its pods there are a JobSet and a Job."""
    name = job["metadata"]["name"]
    return [pod for pod in pods if pod["metadata"].get("labels", {}).get(kind.pod_label) == name]


def _driver(job: KubernetesObject, pods: list[KubernetesObject], now: float) -> ClusterJob:
    ended = true_conditions(job)
    running = [pod for pod in pods if pod.get("status", {}).get("phase") == "Running"]
    if "Complete" in ended:
        stage = "succeeded"
    elif "Failed" in ended:
        stage = "rejected" if REJECTED in map(pod_exit_code, pods) else "failed"
    elif running:
        stage = "unreachable" if all(is_dead(pod, now) for pod in running) else "running"
    else:
        stage = "pending"
    return _cluster_job(job, "Job", stage, "", now)


def pod_exit_code(pod: KubernetesObject) -> int | None:
    """The exit code of a run's pod; None while it has none. Sidecar containers do not count."""
    statuses = {status["name"]: status for status in pod.get("status", {}).get("containerStatuses", ())}
    ended = statuses.get(CONTAINER, {}).get("state", {}).get("terminated") or {}
    return ended.get("exitCode")


def _cluster_job(job: KubernetesObject, kind: str, stage: str, orphan: str, now: float) -> ClusterJob:
    meta = job["metadata"]
    labels = meta.get("labels", {})
    age = now - seconds(meta["creationTimestamp"])
    return ClusterJob(meta["name"], kind, labels.get(RUN, ""), labels.get(STEP, ""), stage, age, orphan)


def _why_orphan(kube: Kube, job: KubernetesObject, now: float) -> str:
    owners = job["metadata"].get("ownerReferences")
    if not owners:
        young = now - seconds(job["metadata"]["creationTimestamp"]) < YOUNG
        return "" if young else "it has no owner"
    return why_ended(kube, owners[0])
