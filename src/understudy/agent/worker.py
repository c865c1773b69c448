"""Main module of each rank of a job: `python -m understudy.agent.worker JOB.json`, under torchrun or alone."""

import logging
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from understudy import logs
from understudy.agent.parent import die_with_parent

if TYPE_CHECKING:
    from understudy.agent.heartbeat import HeartbeatWriter
    from understudy.jobs.outcome import Outcome
    from understudy.jobs.specification import JobSpec

log = logging.getLogger("understudy.agent.worker")  # `python -m` calls this module __main__


def main() -> int:
    """Do this rank's part of the job, and write its outcome."""
    die_with_parent()  # first of all: the imports here and below take seconds
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the stop file signals a stop
    from understudy.errors import UnderstudyError
    from understudy.jobs.specification import JobSpec

    logs.configure()
    try:
        spec = JobSpec.read(Path(sys.argv[1]))
    except UnderstudyError as error:  # written by another image: the outcome's path is unknown
        log.error("%s", error)
        return error.exit_code
    return _run_rank(spec, int(os.environ["RANK"]))


def _run_rank(spec: "JobSpec", rank: int) -> int:
    """Run a rank from its first heartbeat to its outcome file, and return the exit code."""
    from understudy.agent.heartbeat import HeartbeatWriter

    heartbeat = HeartbeatWriter(spec, rank)
    if spec.supervised:
        _write_into(spec.log(rank))
    outcome = _worked(spec, rank, heartbeat)
    heartbeat.stop()
    if (Path(spec.folder) / heartbeat.attempt).is_dir():  # otherwise another attempt is running
        replace(outcome, attempt=heartbeat.attempt).write(spec.outcome(rank))
    return outcome.exit_code


def _worked(spec: "JobSpec", rank: int, heartbeat: "HeartbeatWriter") -> "Outcome":
    """Do the work and return its outcome. Every exception is caught: a rank without an outcome counts as killed."""
    from understudy.errors import FAILED, Fenced, UnderstudyError
    from understudy.jobs.outcome import Outcome

    try:
        heartbeat("importing")
        if spec.supervised:
            _refuse_another_build(spec.version)
        _refuse_other_factories(spec.factories)
        _work(spec, heartbeat)
    except UnderstudyError as error:
        replace(spec, attempt=heartbeat.attempt).clear()
        log.error("%s", error)
        return Outcome(error.exit_code, str(error), "lost" if isinstance(error, Fenced) else "reported")
    except BaseException as error:
        from understudy.parallel.peers import is_lost_peer

        replace(spec, attempt=heartbeat.attempt).clear()
        log.exception("rank %d failed", rank)
        message = f"rank {rank}: {_one_line(error)}; the traceback is in {spec.rank_logs}"
        return Outcome(FAILED, message, "lost" if is_lost_peer(error) else "raised")
    return Outcome(0)


def _work(spec: "JobSpec", heartbeat: "HeartbeatWriter") -> None:
    from understudy.agent.surroundings import Surroundings
    from understudy.jobs.collectives import Collectives
    from understudy.jobs.payload import LogitCaching, Serving, TrainingJob

    surroundings = Surroundings(spec, heartbeat)
    if isinstance(spec.payload, TrainingJob):
        from understudy.agent.training import train

        train(spec, spec.payload, surroundings)
    elif isinstance(spec.payload, Collectives):
        from understudy.agent.collectives import measure

        measure(spec, spec.payload, surroundings)
    elif isinstance(spec.payload, LogitCaching):
        from understudy.agent.logits import cache

        cache(spec, spec.payload, surroundings)
    elif isinstance(spec.payload, Serving):
        from understudy.agent.serving import serve

        serve(spec, spec.payload, surroundings)
    else:
        from understudy.agent.evaluation import evaluate

        evaluate(spec, spec.payload, surroundings)


def _refuse_another_build(version: str) -> None:
    """Reject a job of another build: in a cluster it was written by a process with an image of its own."""
    from understudy.errors import UnderstudyError
    from understudy.revision import build

    if version != build():
        raise UnderstudyError(
            f"the job was written by understudy {version}, this image has {build()}; take images of "
            "one build for the launcher and for `image` in the cluster's settings"
        )


def _refuse_other_factories(sources: Mapping[str, str]) -> None:
    """Reject model code of a user that differs from the launcher's: the step's key contains its source."""
    from understudy.errors import InputError
    from understudy.models.user_code import user_code

    for factory, source in sources.items():
        module = factory.partition(":")[0]
        try:
            same = user_code(module).source == source
        except ModuleNotFoundError as error:
            raise InputError(f"{factory}: there is no module {error} here; the launcher has it") from error
        if not same:
            raise InputError(
                f"{factory}: differs from the code where the job was launched; take images with the same "
                "code for the launcher and the trainer, and do not change it during a training"
            )


def _write_into(log: Path) -> None:
    """Redirect this process's output to a file that outlives the pod."""
    log.parent.mkdir(parents=True, exist_ok=True)
    stream = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o664)
    os.dup2(stream, 1)
    os.dup2(stream, 2)
    os.close(stream)


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"


if __name__ == "__main__":
    sys.exit(main())
