"""Running a training: the job that a specification describes, recorded and watched, to a model for the store."""

import os
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from understudy.errors import STOPPED, InputError, Stopped, UnderstudyError
from understudy.jobs import attempts
from understudy.jobs.outcome import Outcome
from understudy.jobs.specification import JobSpec
from understudy.launch.kubernetes import task_config
from understudy.launch.kubernetes.settings import cluster_settings, in_cluster
from understudy.launch.local import launcher, warm
from understudy.recipe import Recipe
from understudy.steps.step import Work
from understudy.steps.watch import Watch
from understudy.store import Run


def expect_jobs(recipe: Recipe, run: Run) -> None:
    """Get ready for this run's trainings, if one of them will want a single process here."""
    if in_cluster():
        return
    sizes = [found.nodes * found.processes for found in (recipe.resources.teacher, recipe.resources.distill)]
    if 1 in sizes:
        warm.begin(run)


def train(work: Work, spec: JobSpec) -> None:
    """Run a training to its end; the model becomes the step's result.

    Raises:
        UnderstudyError: it failed, or was asked to stop.
    """
    expect_jobs(work.recipe, work.run)
    with _recorded(work, spec):
        spec, outcome = _launched(work, spec)
        _check(work.step, outcome)
    os.rename(spec.output, work.staged)  # whole or not at all: a launcher that ends here leaves no half of a model


def _check(step: str, outcome: Outcome) -> None:
    if outcome.exit_code == STOPPED:
        raise Stopped(f"{step}: {outcome.message}; run again to go on")
    if outcome.exit_code == InputError.exit_code:
        raise InputError(outcome.message)
    if outcome.exit_code:
        raise UnderstudyError(f"{step}: {outcome.message}")


def _launched(work: Work, spec: JobSpec) -> tuple[JobSpec, Outcome]:
    """The job, and how it ended: here or in the cluster that this step runs in."""
    watch = Watch(work, spec)
    if not in_cluster():
        return spec, launcher.run(spec, watch, work.run)
    from understudy.launch.kubernetes import controller
    from understudy.launch.kubernetes.api import Kube
    from understudy.launch.kubernetes.identity import Identity
    from understudy.launch.kubernetes.job import Job
    from understudy.launch.kubernetes.owner import owner_reference

    kube, cluster = Kube(), cluster_settings()
    key = work.lease.folder.parent.name
    identity = Identity(work.run.id, work.step, key)
    began = float(work.run.facts["started"])
    owner = owner_reference(kube, watch)
    job = Job(spec, identity, spec.resources, cluster, began, owner, task_config.of_this_step())
    outcome = controller.run(job, kube, watch, watch.tell)
    attempt = attempts.latest(Path(spec.folder))
    return (replace(spec, attempt=attempt.name) if attempt else spec), outcome


def _recorded(work: Work, spec: JobSpec) -> AbstractContextManager[None]:
    """MLflow's nested run of the step, with the curve while it grows."""
    from understudy.registry.recorder import Recorder

    tags = {f"understudy.{role}": digest for role, digest in work.inputs.items()}
    return Recorder(work.run, work.tracking_uri, work.recipe.experiment, tags).follow(work.step, spec.metrics)
