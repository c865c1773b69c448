"""What a pod of a job runs: torchrun's agent for its ranks, a watch over them, and an exit code that says what it was.

torchrun exits with 1 whatever its rank's code was, and the training operator restarts a pod by its code: 1 to 127 is
for good, 128 to 255 is tried again. So the agent reads what its ranks said and says it in that language.
"""

import os
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from understudy.agent import node_cache
from understudy.agent.eviction import ATTEMPT, EVICTION
from understudy.errors import FAILED, STOPPED, UnderstudyError
from understudy.jobs import attempts
from understudy.jobs.heartbeat import beats, launcher_silence, now, silence
from understudy.jobs.outcome import Outcome
from understudy.jobs.specification import JobSpec
from understudy.store.files import share

# Exit codes of a pod. For good:
LEFT = 75  # at a checkpoint: the run was stopped, or nobody watches any more (EX_TEMPFAIL of sysexits.h)
# To be started again:
KILLED = 137  # a rank was killed, and not for memory
LOST = 140  # another pod's ranks went away
HUNG = 142
PREEMPTED = 143  # a pod has to go; its ranks took a checkpoint

ABANDONED = "abandoned"  # why ranks had to leave: nobody watches their job any more
CLOSED = "closed"  # in the job's folder: a node that came back found the meeting closed
LOOK = 1.0  # seconds between two looks at the ranks
CARE = 5.0  # seconds between two looks at the launcher


def run(path: Path) -> int:
    """Run this node's ranks to their end.

    Args:
        path: the job's specification.

    Returns:
        The pod's exit code.
    """
    spec = JobSpec.read(path)
    share(Path(spec.folder))
    leave = Path(tempfile.mkdtemp()) / "leave"
    os.environ[EVICTION] = str(leave)
    # Otherwise ranks that meet once more, because a node came or went, read each other's addresses of the time before.
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    watch = _Watch(spec, leave)
    signal.signal(signal.SIGTERM, watch.terminated)
    watch.start()
    return exit_code(spec, _failures(spec, node_cache.local(spec, path)), leave)


def _failures(spec: JobSpec, path: Path) -> dict[int, int] | None:
    """Exit codes of this node's ranks that failed, by rank; None when the nodes lost each other instead."""
    from torch.distributed import DistError
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous.api import RendezvousClosedError, RendezvousError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    config = LaunchConfig(
        **node_cache.await_others(world(os.environ)),
        nproc_per_node=spec.processes,
        max_restarts=0,
        monitor_interval=0.1,
        signals_to_handle="SIGINT",  # SIGTERM is the watch's
        logs_specs=DefaultLogsSpecs(log_dir=tempfile.mkdtemp()),
    )
    try:
        elastic_launch(config, sys.executable)("-m", "understudy.agent.worker", str(path))
    except ChildFailedError as error:
        return {rank: failure.exitcode for rank, failure in error.failures.items()}
    except RendezvousClosedError:
        print("this job's meeting is closed: a node has failed, and others still wait in it", file=sys.stderr)
        (Path(spec.folder) / CLOSED).touch()
        return None
    except (RendezvousError, ConnectionError, DistError) as error:
        print(f"the nodes lost each other: {error}", file=sys.stderr)
        return None
    return {}


def world(environment: Mapping[str, str]) -> dict[str, Any]:
    """How the nodes find each other, as torchrun's LaunchConfig takes it, from the variables of torchrun (PET_*).

    The training operator names a rendezvous that any node may join, Trainer v2 a first node and everyone's number.
    """
    least, _, most = environment["PET_NNODES"].partition(":")
    nodes = {"min_nodes": int(least), "max_nodes": int(most or least)}
    if "PET_RDZV_ENDPOINT" in environment:
        return {
            **nodes,
            "run_id": environment.get("PET_RDZV_ID", "none"),
            "rdzv_backend": environment["PET_RDZV_BACKEND"],
            "rdzv_endpoint": environment["PET_RDZV_ENDPOINT"],
        }
    return {
        **nodes,
        "run_id": "none",
        "rdzv_backend": "static",
        "rdzv_endpoint": f"{environment['PET_MASTER_ADDR']}:{environment['PET_MASTER_PORT']}",
        "rdzv_configs": {"rank": int(environment["PET_NODE_RANK"])},
    }


def exit_code(spec: JobSpec, failures: dict[int, int] | None, leave: Path) -> int:
    """What a pod's end means to whoever may start it again.

    Args:
        spec: the job.
        failures: this node's failed ranks with their exit codes, negative for a signal; None: no word of any.
        leave: holds the reason why this node had to leave, if it had to.
    """
    if failures == {}:
        return 0
    reason = leave.read_text() if leave.exists() else ""
    if failures is None:
        return LEFT if reason == ABANDONED else PREEMPTED if reason else LOST
    word = leave.with_name(ATTEMPT)
    attempt = word.read_text() if word.exists() else ""
    if attempt and not (Path(spec.folder) / attempt).is_dir():
        print("another attempt goes on: this node was only cut off, and its word does not count", file=sys.stderr)
        return LOST
    outcome = Outcome.cause([_outcome(spec, rank, code, attempt) for rank, code in failures.items()])
    print(f"this node's ranks ended: {outcome.message}", file=sys.stderr)
    if outcome.exit_code == STOPPED:
        return LEFT if reason == ABANDONED or spec.stop_file.exists() else PREEMPTED
    if outcome.kind in ("killed", "lost"):
        return KILLED if outcome.kind == "killed" else LOST
    return outcome.exit_code


def _outcome(spec: JobSpec, rank: int, code: int, attempt: str) -> Outcome:
    """What a rank said at its end, or what its end says; then it is written down for the launcher."""
    if outcome := Outcome.read(spec.outcome(rank)):
        return outcome
    said = replace(_death(rank, code, spec), attempt=attempt)
    if code != -signal.SIGTERM:  # that was the agent, who ends the others when one has failed
        with suppress(UnderstudyError):  # on a full disk the pod's own log has it
            said.write(spec.outcome(rank))
    return said


def _death(rank: int, code: int, spec: JobSpec) -> Outcome:
    if code == -signal.SIGKILL and (limit := _killed_for_memory()):
        message = (
            f"rank {rank} was killed for memory (OOMKilled): its pod may take {limit}. Raise {spec.section}.memory, "
            "or take a smaller batch_size, larger gradient_accumulation_steps or strategy fsdp."
        )
        return Outcome(FAILED, message, "told")
    if code == -signal.SIGTERM:
        return Outcome(FAILED, f"rank {rank} was ended because another one of its node failed", "lost")
    if code == -signal.SIGABRT:
        return Outcome(FAILED, f"rank {rank} gave up (SIGABRT), as NCCL makes ranks do that lost another", "lost")
    if code < 0:
        return Outcome(FAILED, f"rank {rank} ended with signal {signal.Signals(-code).name}", "killed")
    return Outcome(FAILED, f"rank {rank} ended with exit code {code} and no word", "silent")


def _killed_for_memory() -> str | None:
    """The memory limit of this container, if one of its processes was killed for it (cgroups, version 2 or 1)."""
    for events, limit in (
        ("memory.events", "memory.max"),
        ("memory/memory.oom_control", "memory/memory.limit_in_bytes"),
    ):
        path = Path("/sys/fs/cgroup") / events
        if path.exists():
            count = re.search(r"^oom_kill (\d+)", path.read_text(), re.MULTILINE)
            if count and int(count[1]):
                allowed = (Path("/sys/fs/cgroup") / limit).read_text().strip()
                return f"{int(allowed) / 2**20:,.0f} MiB" if allowed.isdigit() else allowed
    return None


class _Watch(threading.Thread):
    """Looks after the ranks while they work: asks them to leave, and ends them when they hang."""

    def __init__(self, spec: JobSpec, leave: Path) -> None:
        super().__init__(name="watch", daemon=True)
        self._spec, self._leave = spec, leave
        self._folder = Path(spec.folder)
        self._began = now(self._folder)
        self._silent = False

    def terminated(self, _signal: int, _frame: FrameType | None) -> None:
        """The pod has to go: its ranks take a checkpoint if they have anything to keep."""
        if not self._has_stepped():
            _end(PREEMPTED)
        if not self._leave.exists():
            self._leave.write_text("preempted")

    def _has_stepped(self) -> bool:
        """Whether ranks of this pod's time have done a step; others wait, and do not look whether they have to go."""
        ranks = attempts.ranks(self._spec)
        fresh = silence(self._folder, ranks, self._began) is not None
        return fresh and any(beat.step >= 0 for beat in beats(self._folder, ranks).values())

    def run(self) -> None:
        """Look until the ranks are done."""
        ended, waited = threading.Event(), 0.0
        while not ended.wait(LOOK):
            waited += LOOK
            try:
                if not self._folder.is_dir():
                    _end(LEFT)  # somebody else has finished this job, or gc has
                self._look_for_a_closed_meeting()
                self._look_for_a_hang()
                if waited >= CARE:
                    waited = 0.0
                    self._look_for_the_launcher()
            except (OSError, UnderstudyError) as error:  # a volume that is full or away for a moment
                print(f"cannot look after the ranks now: {error}", file=sys.stderr, flush=True)

    def _look_for_the_launcher(self) -> None:
        silent_before, self._silent = self._silent, launcher_silence(self._folder) > self._spec.launcher_timeout
        if not (self._silent and silent_before):  # one look may have hung with the volume for as long
            return
        if not self._leave.exists():
            print(
                f"nobody has watched this job for {self._spec.launcher_timeout:.0f} s: leaving",
                file=sys.stderr,
                flush=True,
            )
            self._leave.write_text(ABANDONED)
            with suppress(OSError):  # on a full volume they leave all the same
                self._spec.abandoned_file.touch()
        if self._leave.read_text() == ABANDONED and not self._has_stepped():
            _end(LEFT)

    def _look_for_a_closed_meeting(self) -> None:
        """Ranks that wait for one that has failed would wait for long, and whoever comes instead is not let in."""
        closed = self._folder / CLOSED
        if not closed.exists() or closed.stat().st_mtime < self._began:
            return
        said = beats(self._folder, attempts.ranks(self._spec)).values()
        if not all(beat.step >= 0 for beat in said):
            print("a node that came back is not let in here: starting again with it", file=sys.stderr, flush=True)
            _end(LOST)

    def _look_for_a_hang(self) -> None:
        ranks = attempts.ranks(self._spec)
        quiet = silence(self._folder, ranks, self._began)
        if quiet is None or quiet < self._spec.hang_timeout + LOOK:
            return
        said = attempts.outcomes(self._spec)
        if any(outcome.exit_code for outcome in said):
            return  # the agents end the others
        if len(said) == len(ranks):
            print("every rank is done, and a process of theirs does not end: ending it", file=sys.stderr, flush=True)
            _end(0)
        places = [f"rank {b.rank} on {b.node}: {b.phase}, step {b.step}" for b in beats(self._folder, ranks).values()]
        left = f"stacks and collectives are in {self._spec.logs}"
        text = f"no rank has moved for {quiet:.0f} s ({'; '.join(places)}); {left}"
        try:
            attempts.report_hang(self._spec, text)
        finally:
            _end(HUNG)


def _end(code: int) -> None:
    """End the pod: its ranks die with this process."""
    sys.stdout.flush()
    os._exit(code)
