"""Rules for lack of capacity: whether it may come, and with how few nodes the job can run meanwhile."""

from understudy.errors import FAILED
from understudy.jobs.outcome import Outcome
from understudy.kube.scheduling import has_all_nodes, has_its_kind, is_scaling, may_get_a_node, never_fits
from understudy.kube.timeouts import RECOVERY
from understudy.launch.kubernetes import elastic
from understudy.launch.kubernetes.decisions import Decision, Finish, Resize, Wait
from understudy.launch.kubernetes.history import History
from understudy.launch.kubernetes.status import JobStatus


def too_few_nodes(status: JobStatus, history: History) -> Decision | None:
    """Resize to fewer nodes, if the recipe allows it and the cluster has had a minute to provide all of them."""
    if status.watched is None or history.seconds_in_state(status) < RECOVERY or is_scaling(status.events):
        return None
    spec = status.job.spec
    nodes = elastic.smaller_size(spec, status.watched, status.state, status.pods)
    if nodes is None:
        return None
    return Resize(nodes, f"asking for {nodes} of {spec.nodes} nodes: {status.state.detail}")


def queue_never_admits(status: JobStatus, history: History) -> Decision | None:
    """Fail a job that is larger than its queue's whole quota, or whose queue does not exist: it would wait forever."""
    state = status.state
    if state.stage != "queued" or not state.is_never_admitted or history.seconds_in_state(status) < RECOVERY:
        return None
    return _fail(f"the queue can never admit this job. {state.detail}")


def pods_refused(status: JobStatus, history: History) -> Decision | None:
    """Fail a job whose pods the cluster rejects; wait if no operator creates them."""
    if status.state.stage != "pending" or status.pods or history.seconds_in_state(status) < RECOVERY:
        return None
    reasons = status.job.kind.refusals
    refusals = [event["message"] for event in status.events if event.get("reason") in reasons]
    if not refusals:
        return Wait("pending: still no pods; is the training operator running?")
    fix = f"; correct {status.job.spec.section}.priority" if "PriorityClass" in refusals[-1] else ""
    return _fail(f"the cluster refuses the job's pods: {refusals[-1]}{fix}")


def node_never_fits(status: JobStatus, history: History) -> Decision | None:
    """Fail a job with a pod that fits no node, even an empty one, unless an autoscaler may add one."""
    state = status.state
    if state.stage != "pending" or not status.pods or history.seconds_in_state(status) < RECOVERY:
        return None
    if history.scales or may_get_a_node(status.events):
        return None
    if status.nodes is None:
        unknown = "whether any node fits is unknown, since this account may not list nodes"
        return Wait(f"pending: {state.detail}; {unknown}")
    # The autoscaler has reached its maximum, and no node of this kind is up yet: they are on their way.
    if has_all_nodes(status.events) and not has_its_kind(status.pods[0], status.nodes):
        return None
    reason = never_fits(status.pods[0], status.nodes)
    return (
        _fail(f"this can never be scheduled: {reason}; correct {status.job.spec.section} or its pool")
        if reason
        else None
    )


def _fail(text: str) -> Finish:
    return Finish(Outcome(FAILED, text), explain=True)
