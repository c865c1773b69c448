"""Running a training: the job that a specification describes, recorded and watched, to a model for the store."""

from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from understudy.errors import STOPPED, InputError, Stopped, UnderstudyError
from understudy.jobs import attempts
from understudy.jobs.outcome import Outcome
from understudy.jobs.specification import JobSpec
from understudy.launch.platform import platform
from understudy.steps.delivery import deliver
from understudy.steps.step import Work
from understudy.steps.watch import Watch


def train(work: Work, spec: JobSpec) -> None:
    """Run a training to its end; the model becomes the step's result.

    Raises:
        UnderstudyError: it failed, or was asked to stop.
    """
    platform().prepare(work.run, work.recipe.resources)
    with _record(work, spec):
        _check(work.step, _outcome(work, spec))
    deliver(_output(spec), work.staged, Path(spec.initial) if spec.initial else None)


def _check(step: str, outcome: Outcome) -> None:
    if outcome.exit_code == STOPPED:
        raise Stopped(f"{step}: {outcome.message}; run again to resume")
    if outcome.exit_code == InputError.exit_code:
        raise InputError(outcome.message)
    if outcome.exit_code:
        raise UnderstudyError(f"{step}: {outcome.message}")


def _outcome(work: Work, spec: JobSpec) -> Outcome:
    """How the job ended, with any launcher."""
    launcher = platform().launcher(work.run, work.step, key=work.lease.folder.parent.name)
    return launcher.run(spec, Watch(work, spec))


def _output(spec: JobSpec) -> Path:
    """The finished model's files: of the last attempt, where a job may have several."""
    attempt = attempts.latest(Path(spec.folder))
    return replace(spec, attempt=attempt.name if attempt else "").output


def _record(work: Work, spec: JobSpec) -> AbstractContextManager[None]:
    """MLflow's nested run of the step, with the curve while it grows."""
    from understudy.registry.recorder import Recorder

    tags = {f"understudy.{role}": digest for role, digest in work.inputs.items()}
    return Recorder(work.run, work.tracking_uri, work.recipe.experiment, tags).follow(work.step, spec.metrics)
