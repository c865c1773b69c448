"""Rules for reports of ranks: outcomes, failures of earlier attempts, and progress."""

from understudy.errors import FAILED, STOPPED
from understudy.jobs.outcome import Outcome
from understudy.kube.pods import death
from understudy.kube.timeouts import STARTS
from understudy.launch.kubernetes.decisions import Announce, Decision, Finish, Restart
from understudy.launch.kubernetes.history import History
from understudy.launch.kubernetes.status import JobStatus


def rank_failed_before(status: JobStatus, history: History) -> Decision | None:
    """Announce failures of earlier attempts: the operator, or the node agents, restart the ranks by themselves."""
    news = status.failures[history.announced :]
    messages = tuple(f"restarting at the last checkpoint: {outcome.message}" for outcome in news)
    return Announce(messages) if messages else None


def run_stopped(status: JobStatus, _history: History) -> Decision | None:
    """Finish a job whose ranks were asked to take a checkpoint and end, and did."""
    cause = status.cause
    return Finish(cause) if cause and cause.exit_code == STOPPED and status.has_to_stop else None


def rank_failed(status: JobStatus, _history: History) -> Decision | None:
    """Fail a job with a permanent failure: an error in the recipe or in a model's code, memory, a full disk."""
    cause = status.cause
    return Finish(cause, explain=True) if cause and not _will_pass(cause) else None


def killed_too_often(status: JobStatus, _history: History) -> Decision | None:
    """Fail a job whose ranks were killed more often than the recipe allows; evictions and lost nodes do not count."""
    # Only ranks that were killed. An eviction or a lost node is not the job's fault, and on spot nodes those alone
    # would use up max_restarts.
    killed = [outcome for outcome in status.failures if outcome.kind == "killed"]
    section, allowed = status.job.spec.section, status.job.spec.resources.max_restarts
    if len(killed) <= allowed:
        return None
    times = f"{len(killed)} times, {section}.max_restarts allows {allowed}"
    return Finish(Outcome(FAILED, f"ranks were killed {times}; the last: {killed[-1].message}"), explain=True)


def no_progress(status: JobStatus, history: History) -> Decision | None:
    """Fail a job that was started ten times without a further step: the cause is permanent."""
    # A bound on all other rules that restart: each of them is right once, but a job whose ranks die in the same way
    # before every checkpoint would restart forever.
    if status.candidates is not None or history.starts.count <= STARTS:
        return None
    last = status.failures[-1].message if status.failures else death(status.pods)
    reason = last or "its ranks reported no outcome"
    text = f"the job was started {STARTS} times without progress: {reason}"
    return Finish(Outcome(FAILED, text), explain=True)


def rank_lost(status: JobStatus, _history: History) -> Decision | None:
    """Restart a job with a rank that was killed, lost its peers, or was evicted after a checkpoint."""
    cause = status.cause
    return Restart(cause.message) if cause and _will_pass(cause) else None


def _will_pass(cause: Outcome) -> bool:
    # STOPPED without a stop request: the pod was evicted, and its ranks took a checkpoint first.
    return cause.exit_code == STOPPED or cause.kind in ("killed", "lost")
