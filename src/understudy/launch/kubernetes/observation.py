"""Observation of a job: the queries of its state in the API server and on the volume.

Queries that are expensive, or need rights that an account may lack, run only if a rule could need the answer.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from understudy.jobs import attempts
from understudy.jobs.heartbeat import heartbeats
from understudy.jobs.logs import TAIL
from understudy.kube.api import Kube, Refused
from understudy.kube.job_state import state_of
from understudy.kube.objects import KubernetesObject
from understudy.kube.owner_state import why_ended
from understudy.kube.pods import first_dead, first_pending, was_disrupted
from understudy.kube.scheduling import may_get_a_node, shared_claims
from understudy.kube.settings import STORE
from understudy.kube.timeouts import RECOVERY
from understudy.launch.kubernetes import elastic
from understudy.launch.kubernetes.history import History
from understudy.launch.kubernetes.job import Job
from understudy.launch.kubernetes.status import JobStatus


def observe(job: Job, kube: Kube, history: History, at: float) -> JobStatus:
    """Observe a job.

    Args:
        job: the job.
        kube: the cluster.
        history: the rounds before; without a job name, all jobs that do the work are listed.
        at: the time, by the launcher's clock.
    """
    if not history.name:
        candidates = tuple(kube.jobs(job.kind, job.selector))
        old_pods: tuple[KubernetesObject, ...] = ()
        # A JobSet keeps its name from one TrainJob to the next, so new pods would clash with the old ones.
        if not candidates and not job.kind.replaces_pods:
            old_pods = tuple(kube.pods(job.kind.pods_of(job.name)))
        return JobStatus(job, at, candidates, pods=old_pods, is_complete=attempts.is_complete(job.spec))
    watched = kube.job(job.kind, history.name)
    pods = elastic.sufficient_pods(job.spec, kube.pods(job.kind.pods_of(history.name))) if watched else []
    # This lists all Workloads, so it runs only while a queue suspends the job.
    workload = kube.workload_of(watched) if watched and job.kind.is_suspended(watched) else None
    status = JobStatus(
        job,
        at,
        name=history.name,
        watched=watched,
        pods=tuple(pods),
        state=state_of(watched, pods, workload, history.overdue(pods, at), job.kind),
        heartbeats=heartbeats(job.folder, range(job.spec.world_size)),
        attempt=attempts.number(job.folder),
        outcomes=tuple(attempts.outcomes(job.spec)),
        failures=tuple(outcome for outcome in attempts.failures(job.folder) if outcome.at > job.since),
        is_complete=attempts.is_complete(job.spec),
        has_to_stop=job.spec.stop_file.exists(),
        was_abandoned=job.spec.abandoned_file.exists(),
    )
    if status.state.has_ended:
        return _with_ending(status, kube)
    # Events and nodes cost a request per pod. No rule acts on them in the first minute, in which most faults recover
    # by themselves; a healthy job never needs them.
    after = history.after(status)
    return _with_reports(status, after, kube) if after.seconds_in_state(status) >= RECOVERY else status


def _with_ending(status: JobStatus, kube: Kube) -> JobStatus:
    """Add the queries for a job that has ended."""
    if status.state.stage == "gone":
        ending = ""
        with suppress(Refused):  # this account may lack the right
            ending = why_ended(kube, status.job.owner) if status.job.owner else ""
        return replace(status, owner_ended=ending)
    is_explained = status.failed or status.is_complete or status.was_abandoned or was_disrupted(status.pods)
    if status.state.stage == "failed" and not is_explained:
        # The pod that ended first: the others failed because they lost it, and their logs show only that.
        first = first_dead(status.pods)
        lines = kube.log(first, TAIL) if first else []
        return replace(status, pod_log=(f"the last lines of {first}:", *lines) if lines else ())
    return status


def _with_reports(status: JobStatus, history: History, kube: Kube) -> JobStatus:
    """Add the queries for a job that has not started for a while."""
    stage, pods = status.state.stage, status.pods
    if status.state.broken or status.watched is None:
        return status
    if stage == "pulling":
        return replace(status, events=tuple(kube.events(first_pending(pods))))
    if stage != "pending":
        return status
    if not pods:
        return replace(status, events=tuple(kube.refusals(status.job.kind, status.watched)))
    events = tuple(event for pod in pods for event in kube.events(pod))
    # If an autoscaler may add a node, the existing nodes prove nothing.
    needs_nodes = not history.scales and not may_get_a_node(events)
    return replace(status, events=events, nodes=_open_nodes(pods[0], kube) if needs_nodes else None)


def _open_nodes(pod: KubernetesObject, kube: Kube) -> tuple[KubernetesObject, ...] | None:
    """Candidate nodes of a pod: all, or only the node that has the store; None if they cannot be listed."""
    try:
        nodes: Sequence[KubernetesObject] = kube.nodes()
    except Refused:
        return None  # listing nodes takes a ClusterRole, which not every account has
    for claim in shared_claims(pod):
        store_pods = kube.pods(f"{STORE}={claim}")
        store_nodes = {
            pod_on_store["spec"].get("nodeName")
            for pod_on_store in store_pods
            if pod_on_store["status"].get("phase") == "Running"
        }
        if store_nodes:
            nodes = [node for node in nodes if node["metadata"]["name"] in store_nodes]
    return tuple(nodes)
