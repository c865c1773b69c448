"""Rules for pods that cannot start, or that end by what happens around them."""

from understudy.errors import FAILED
from understudy.jobs.outcome import Outcome
from understudy.launch.kubernetes.decisions import Decision, DeletePods, Finish, Restart, Wait
from understudy.launch.kubernetes.history import History
from understudy.launch.kubernetes.patience import RECOVERY, UNMOUNTED
from understudy.launch.kubernetes.pods import first_pending, has_ended, memory_limit, mount_error, name, out_of_memory
from understudy.launch.kubernetes.status import JobStatus


def node_lost(status: JobStatus, _history: History) -> Decision | None:
    """Forget the pods of a dead node, and have the others start again with those that come instead; or all anew."""
    dead = status.standing.dead
    if not dead:
        return None
    # The others wait in a collective for the dead ones, and nobody tells them: all of them start again together.
    if not status.job.kind.replaces_pods:  # a Job counts on its pods until it is deleted itself
        return Restart(status.standing.detail)
    others = [pod for pod in status.pods if name(pod) not in dead and "deletionTimestamp" not in pod["metadata"]]
    return DeletePods(dead, tuple(name(pod) for pod in others), f"restarting: {status.standing.detail}")


def memory_exceeded(status: JobStatus, _history: History) -> Decision | None:
    """A container that was killed for its memory would take as much again."""
    for pod in status.pods:
        if ended := out_of_memory(pod):
            limit, section = memory_limit(pod) or "what its node has", status.job.spec.section
            text = f"{name(pod)} ran out of memory (OOMKilled, exit code {ended['exitCode']}; its limit is {limit})"
            smaller = "take a smaller batch_size, a larger gradient_accumulation_steps or strategy fsdp"
            return Finish(Outcome(FAILED, f"{text}. Raise {section}.memory, or {smaller}."), explain=True)
    return None


def container_cannot_start(status: JobStatus, history: History) -> Decision | None:
    """An image that cannot be pulled, or a container that cannot be made, has a minute to mend."""
    if not status.standing.broken or history.waited(status) < RECOVERY:
        return None
    return Finish(Outcome(FAILED, status.standing.broken), explain=True)


def volume_missing(status: JobStatus, history: History) -> Decision | None:
    """A pod that gets no volume or no network has ten minutes, unless the job has gone on without it meanwhile."""
    if status.standing.stage != "pulling" or not status.events:
        return None
    why, lasted = mount_error(status.events)
    pod = name(first_pending(status.pods))
    if not why:
        return None
    # Both: what was reported of the pod may be older than the last time that the job ran well without it.
    if min(lasted, status.at - history.ran_at) < UNMOUNTED:
        return Wait(f"pulling: {pod} does not start yet: {why}")
    return Finish(Outcome(FAILED, f"{pod} did not start for {lasted / 60:.0f} minutes: {why}"), explain=True)


def operator_silent(status: JobStatus, history: History) -> Decision | None:
    """Pods that have ended stay as they are until the operator makes others, or says how the job did."""
    standing = status.standing
    if standing.stage not in ("ending", "restarting") or history.waited(status) < RECOVERY:
        return None
    if not all(has_ended(pod) for pod in status.pods):
        return None
    return Wait(f"{standing.stage}: {standing.detail}; does the training operator run?")
