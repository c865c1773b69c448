"""The local launcher: a job's ranks as processes on this machine, one alone or several under torchrun."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from understudy.agent.parent import environment
from understudy.errors import FAILED, InputError
from understudy.jobs.outcome import Outcome
from understudy.jobs.specification import JobSpec
from understudy.launch.launcher import Watch
from understudy.launch.local import warm
from understudy.launch.local.kills import kill_explanation, oom_kill_count
from understudy.launch.local.refusal import check_that_it_fits
from understudy.store import Run

WORKER = "understudy.agent.worker"


@dataclass(frozen=True)
class LocalLauncher:
    """Runs the jobs of one run, if possible as forks of the run's warm process."""

    pipeline_run: Run

    def run(self, spec: JobSpec, watch: Watch) -> Outcome:
        """Run a job to its end; arguments, outcome and errors as of Launcher.run().

        The outcome is the root failure of the ranks, or follows from the exit code of their process.

        Raises:
            InputError: the job has several nodes, or cannot fit this machine.
        """
        if spec.nodes > 1:
            raise InputError(
                "resources: more than one node needs a cluster; on this machine set nodes=1 and processes=N"
            )
        check_that_it_fits(self.pipeline_run, spec)
        path = spec.write()
        for stale in [spec.stop_file, spec.metrics, *Path(spec.folder).glob("outcome-*.json")]:
            stale.unlink(missing_ok=True)
        spec.rank_logs.mkdir(parents=True, exist_ok=True)
        initial_oom_kills = oom_kill_count()
        process = _start(spec, path, self.pipeline_run)
        try:
            while process.poll() is None:
                watch()
                time.sleep(0.05)
        finally:
            process.kill()
            returncode = process.wait()
            if returncode:
                spec.clear()
        return _outcome(spec, returncode, initial_oom_kills)


def _start(spec: JobSpec, path: Path, pipeline_run: Run) -> warm.Worker | subprocess.Popen[bytes]:
    log, environment = Path(spec.logs) / f"{spec.role}.log", _environment(spec)
    if spec.world_size == 1 and (worker := warm.start(pipeline_run, WORKER, str(path), environment, log)):
        return worker
    with log.open("ab") as output:
        return subprocess.Popen(
            command(spec, path), env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )


def command(spec: JobSpec, path: Path) -> list[str]:
    """The command that starts the job: the worker itself for a single rank, otherwise torchrun."""
    module = WORKER if spec.world_size == 1 else "understudy.launch.local.torchrun"
    return [sys.executable, "-m", module, str(path)]


def _environment(spec: JobSpec) -> dict[str, str]:
    alone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"} if spec.world_size == 1 else {}
    return {**environment(), **alone, "OMP_NUM_THREADS": str(spec.threads), "TOKENIZERS_PARALLELISM": "false"}


def _outcome(spec: JobSpec, returncode: int, initial_oom_kills: int | None) -> Outcome:
    """The root failure of the ranks; without one, the outcome that the process's exit code means."""
    outcomes = (Outcome.read(spec.outcome(rank)) for rank in range(-1, spec.world_size))
    ended = [outcome for outcome in outcomes if outcome is not None]
    failures = [outcome for outcome in ended if outcome.exit_code]
    if failures:
        return Outcome.cause(failures)
    return death(0, returncode, spec, initial_oom_kills) if returncode else Outcome(0)


def death(rank: int, code: int, spec: JobSpec, initial_oom_kills: int | None) -> Outcome:
    """The outcome of a rank that ended without writing one.

    Args:
        rank: the rank.
        code: its exit code; negative for a signal.
        spec: its job.
        initial_oom_kills: number of OOM kills when the job began.
    """
    name = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    hint = f" {kill_explanation(initial_oom_kills)}" if code == -signal.SIGKILL else ""
    logs = os.path.relpath(Path(spec.logs))
    message = f"rank {rank} ended with {name}.{hint} Its output is in {logs}; run again to resume."
    return Outcome(FAILED, message, "killed" if code < 0 else "unreported")
