"""Evidence for the verdict on a failed job: how its pods ended, and the last log lines."""

from dataclasses import replace

from understudy.errors import InputError
from understudy.jobs.logs import RankLogs
from understudy.jobs.outcome import Outcome
from understudy.kube.pods import death
from understudy.launch.kubernetes.status import JobStatus


def explained(outcome: Outcome, status: JobStatus, logs: RankLogs) -> Outcome:
    """An outcome whose message includes the evidence.

    Args:
        outcome: the verdict; that of a rank if it is the cause.
        status: the job's status at the verdict.
        logs: the logs of the ranks.
    """
    cause = death(status.pods)
    message = f"{outcome.message} ({cause})" if cause else outcome.message
    lines = status.pod_log if outcome.kind == "unreported" else ()
    return replace(outcome, message="\n".join([message, *_rank_lines(outcome, status, logs), *lines]), attempt="")


def _rank_lines(outcome: Outcome, status: JobStatus, logs: RankLogs) -> list[str]:
    """The last lines of the rank with this outcome; an error in the recipe is clear without them."""
    if outcome.exit_code == InputError.exit_code:
        return []
    spec = status.job.spec
    rank = next((rank for rank in range(spec.world_size) if Outcome.read(spec.outcome(rank)) == outcome), None)
    lines = logs.tail(rank) if rank is not None else []
    return [f"the last lines of rank {rank}:", *lines] if lines else []
