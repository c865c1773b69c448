"""The diagnosis: the rules in order of precedence; the first decision counts.

A new rule needs a function in `rules/`, a position in RULES, a row in the fault table of
docs/operating/supervision.md, and a test.
"""

from collections.abc import Callable

from understudy.launch.kubernetes.decisions import Decision, Wait
from understudy.launch.kubernetes.history import History
from understudy.launch.kubernetes.rules.capacity import node_never_fits, pods_refused, queue_never_admits, too_few_nodes
from understudy.launch.kubernetes.rules.ending import (
    ended_without_outcome,
    job_deleted,
    launcher_unseen,
    outcomes_missing,
    pods_evicted,
    result_complete,
    result_missing,
)
from understudy.launch.kubernetes.rules.pods import (
    container_cannot_start,
    memory_exceeded,
    node_lost,
    operator_silent,
    volume_missing,
)
from understudy.launch.kubernetes.rules.ranks import (
    killed_too_often,
    no_progress,
    rank_failed,
    rank_failed_before,
    rank_lost,
    run_stopped,
)
from understudy.launch.kubernetes.rules.submission import (
    deletion_unanswered,
    job_left_over,
    launcher_replaced,
    no_job,
    pods_left_over,
)
from understudy.launch.kubernetes.status import JobStatus

Rule = Callable[[JobStatus, History], Decision | None]

RULES: tuple[Rule, ...] = (
    deletion_unanswered,
    # No job is watched yet.
    launcher_replaced,
    job_left_over,
    pods_left_over,
    no_job,
    # The job has ended. Success comes first: even if something else happened, the result exists.
    rank_failed_before,
    result_complete,
    outcomes_missing,
    job_deleted,
    node_lost,
    run_stopped,
    rank_failed,
    # Permanent failures. They come before the rules that restart the job: none may do so forever.
    memory_exceeded,
    launcher_unseen,
    killed_too_often,
    no_progress,
    # Failures that are worth another attempt.
    rank_lost,
    result_missing,
    pods_evicted,
    ended_without_outcome,
    # The job cannot start for lack of resources.
    too_few_nodes,
    container_cannot_start,
    volume_missing,
    queue_never_admits,
    pods_refused,
    operator_silent,
    node_never_fits,
)


def decide(status: JobStatus, history: History) -> Decision:
    """The decision about a job: that of the first rule with one, otherwise to wait, with the reason."""
    for rule in RULES:
        if decision := rule(status, history):
            return decision
    state = status.state
    if state.stage == "running" and status.step >= 0:
        return Wait()  # the ranks report their progress
    return Wait(f"{state.stage}: {state.detail}")
