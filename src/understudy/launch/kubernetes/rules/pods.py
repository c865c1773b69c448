"""Rules for pods that cannot start, exceed their memory, or lose their node."""

from understudy.errors import FAILED
from understudy.jobs.outcome import Outcome
from understudy.kube.pods import first_pending, has_ended, memory_limit, mount_error, name, out_of_memory
from understudy.kube.timeouts import RECOVERY, UNMOUNTED
from understudy.launch.kubernetes.decisions import Decision, DeletePods, Finish, Restart, Wait
from understudy.launch.kubernetes.history import History
from understudy.launch.kubernetes.status import JobStatus


def node_lost(status: JobStatus, _history: History) -> Decision | None:
    """Force-delete the pods of a dead node and restart the others; if pods are not replaced, restart the job."""
    dead = status.state.dead
    if not dead:
        return None
    # The others wait in a collective for the dead ones and do not notice: all of them restart together.
    if not status.job.kind.replaces_pods:  # a Job waits for its pods until it is deleted itself
        return Restart(status.state.detail)
    staying = [pod for pod in status.pods if "deletionTimestamp" not in pod["metadata"]]
    responsive = tuple(name(pod) for pod in staying if name(pod) not in dead)
    return DeletePods(dead, responsive, f"restarting: {status.state.detail}")


def memory_exceeded(status: JobStatus, _history: History) -> Decision | None:
    """Fail a job with a container that ran out of memory (OOM): it would need as much again."""
    for pod in status.pods:
        ended = out_of_memory(pod)
        if ended is not None:
            limit = memory_limit(pod) or "its node's memory"
            section = status.job.spec.section
            text = f"{name(pod)} ran out of memory (OOMKilled, exit code {ended['exitCode']}; its limit is {limit})"
            smaller = "take a smaller batch_size, a larger gradient_accumulation_steps or strategy fsdp"
            return Finish(Outcome(FAILED, f"{text}. Raise {section}.memory, or {smaller}."), explain=True)
    return None


def container_cannot_start(status: JobStatus, history: History) -> Decision | None:
    """Fail a job whose image cannot be pulled, or whose container cannot be created, for a minute."""
    if not status.state.broken or history.seconds_in_state(status) < RECOVERY:
        return None
    return Finish(Outcome(FAILED, status.state.broken), explain=True)


def volume_missing(status: JobStatus, history: History) -> Decision | None:
    """Fail a job with a pod that gets no volume or network for ten minutes, unless it runs without that pod."""
    if status.state.stage != "pulling" or not status.events:
        return None
    reason, lasted = mount_error(status.events)
    pod = name(first_pending(status.pods))
    if not reason:
        return None
    # Both: the pod's events may be older than the last time that the job ran well without it.
    if min(lasted, status.at - history.ran_at) < UNMOUNTED:
        return Wait(f"pulling: {pod} does not start yet: {reason}")
    return Finish(Outcome(FAILED, f"{pod} did not start for {lasted / 60:.0f} minutes: {reason}"), explain=True)


def operator_silent(status: JobStatus, history: History) -> Decision | None:
    """Wait, with a hint, if the operator neither replaces pods that have ended nor sets the job's status."""
    state = status.state
    if state.stage not in ("ending", "restarting") or history.seconds_in_state(status) < RECOVERY:
        return None
    if not all(has_ended(pod) for pod in status.pods):
        return None
    return Wait(f"{state.stage}: {state.detail}; is the training operator running?")
