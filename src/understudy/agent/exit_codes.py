"""Exit codes of a pod, by which the training operator decides whether to restart it.

The operator takes 1 to 127 as permanent and retries 128 to 255. torchrun exits with 1 for every code of its rank.
So the node agent translates the outcomes of its ranks into such a code.
"""

import logging
import signal
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from understudy.agent.eviction import ABANDONED, ATTEMPT
from understudy.errors import FAILED, STOPPED, UnderstudyError
from understudy.host_memory import memory_limit, oom_kills
from understudy.jobs.outcome import Outcome
from understudy.jobs.specification import JobSpec

log = logging.getLogger(__name__)

# Permanent:
STOPPED_AT_CHECKPOINT = 75  # the run was stopped, or there is no launcher (EX_TEMPFAIL of sysexits.h)
# Retried: above 127, since the operator's restartPolicy ExitCode takes those for transient failures. The first and
# the last are a shell's codes for SIGKILL and SIGTERM.
KILLED = 137  # a rank was killed, but not by the OOM killer
PEERS_LOST = 140  # another pod's ranks are gone
HUNG = 142
EVICTED = 143  # the pod was evicted; its ranks took a checkpoint


def exit_code(spec: JobSpec, failures: dict[int, int] | None, eviction: Path) -> int:
    """The exit code of a pod, for the operator that may restart it.

    Args:
        spec: the job.
        failures: exit codes of this node's failed ranks, negative for a signal; None if no rank has one.
        eviction: a file with the reason of this node's eviction, if it was evicted.
    """
    if failures == {}:
        return 0
    reason = eviction.read_text() if eviction.exists() else ""
    if failures is None:
        return _exit_code_of_reason(reason)
    attempt_file = eviction.with_name(ATTEMPT)
    attempt = attempt_file.read_text() if attempt_file.exists() else ""
    # A new attempt renames the folder of the one before. A node that was cut off and comes back would otherwise end the
    # new attempt with the failure of its old ranks.
    if attempt and not (Path(spec.folder) / attempt).is_dir():
        log.warning("another attempt is running: this node was cut off, so its outcome is ignored")
        return PEERS_LOST
    outcome = Outcome.cause([_outcome(spec, rank, code, attempt) for rank, code in failures.items()])
    log.error("this node's ranks ended: %s", outcome.message)
    if outcome.exit_code == STOPPED:
        return STOPPED_AT_CHECKPOINT if reason == ABANDONED or spec.stop_file.exists() else EVICTED
    if outcome.kind in ("killed", "lost"):
        return KILLED if outcome.kind == "killed" else PEERS_LOST
    return outcome.exit_code


def _exit_code_of_reason(reason: str) -> int:
    """The exit code of a node whose ranks did not fail themselves."""
    if reason == ABANDONED:
        return STOPPED_AT_CHECKPOINT
    return EVICTED if reason else PEERS_LOST


def _outcome(spec: JobSpec, rank: int, code: int, attempt: str) -> Outcome:
    """A rank's recorded outcome, or one derived from its exit code and recorded for the launcher."""
    if outcome := Outcome.read(spec.outcome(rank)):
        return outcome
    derived = replace(_death(rank, code, spec), attempt=attempt)
    if code != -signal.SIGTERM:  # from the agent, which ends the other ranks when one has failed
        with suppress(UnderstudyError):  # on a full disk the pod's log still has it
            derived.write(spec.outcome(rank))
    return derived


def _death(rank: int, code: int, spec: JobSpec) -> Outcome:
    # Kubernetes reports OOMKilled only if the container's first process was killed, which is this agent.
    if code == -signal.SIGKILL and oom_kills():
        message = (
            f"rank {rank} ran out of memory (OOMKilled): {_pod_limit()}. Raise {spec.section}.memory, "
            "or take a smaller batch_size, larger gradient_accumulation_steps or strategy fsdp."
        )
        return Outcome(FAILED, message, "reported")
    if code == -signal.SIGTERM:
        return Outcome(FAILED, f"rank {rank} was ended because another rank on its node failed", "lost")
    if code == -signal.SIGABRT:
        return Outcome(FAILED, f"rank {rank} aborted (SIGABRT), as NCCL ranks do when they lose a peer", "lost")
    if code < 0:
        return Outcome(FAILED, f"rank {rank} ended with signal {signal.Signals(-code).name}", "killed")
    return Outcome(FAILED, f"rank {rank} ended with exit code {code} and no outcome", "unreported")


def _pod_limit() -> str:
    limit = memory_limit()
    return f"its pod's limit is {limit / 2**20:,.0f} MiB" if limit else "its pod has no limit, and its node is full"
