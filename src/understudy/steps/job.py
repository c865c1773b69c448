"""Running a step's job to completion, with the platform's launcher."""

from dataclasses import replace
from pathlib import Path

from understudy.errors import STOPPED, InputError, Stopped, UnderstudyError
from understudy.jobs import attempts
from understudy.jobs.outcome import Outcome
from understudy.jobs.specification import JobSpec
from understudy.launch.metrics import exposed
from understudy.launch.platform import platform
from understudy.steps.step import Work
from understudy.steps.watch import Watch


def run_job(work: Work, spec: JobSpec) -> Path:
    """Run a job to completion.

    Returns:
        The folder of the ranks' result; that of the last attempt, if a job may have several.

    Raises:
        UnderstudyError: the job failed or was stopped.
    """
    launcher = platform().launcher(work.run, work.step, key=work.lease.folder.parent.name)
    watch = Watch(work, spec)
    with exposed(watch.metrics):
        outcome = launcher.run(spec, watch)
    _check(work.step, outcome)
    attempt = attempts.latest(Path(spec.folder))
    return replace(spec, attempt=attempt.name if attempt else "").output


def _check(step: str, outcome: Outcome) -> None:
    if outcome.exit_code == STOPPED:
        raise Stopped(f"{step}: {outcome.message}; run again to resume")
    if outcome.exit_code == InputError.exit_code:
        raise InputError(outcome.message)
    if outcome.exit_code:
        raise UnderstudyError(f"{step}: {outcome.message}")
