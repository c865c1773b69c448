"""Running a training: its job, recorded in MLflow and watched, and the delivery of its model to the store."""

from contextlib import AbstractContextManager
from typing import Any

from understudy.jobs.payload import TrainingJob
from understudy.jobs.specification import JobSpec
from understudy.launch.platform import platform
from understudy.models.facts import HISTORY
from understudy.models.trust import check_delivered
from understudy.models.weight_files import weight_bytes
from understudy.recipe import ArchitectureModel, FactoryModel, Model, Train
from understudy.steps.delivery import deliver_model
from understudy.steps.job import run_job
from understudy.steps.profiles import keep_profile
from understudy.steps.resharding import resume_resharded
from understudy.steps.step import Work
from understudy.store.files import read_json
from understudy.train.validated import best_step


def train(work: Work, spec: JobSpec) -> None:
    """Run a training to completion; the model becomes the step's result.

    Raises:
        UnderstudyError: the training failed or was stopped.
    """
    assert isinstance(spec.payload, TrainingJob)
    platform().prepare(work.run)
    resume_resharded(work, spec)
    with _record(work, spec):
        output = run_job(work, spec)
    if spec.profile:
        keep_profile(work, spec)
    job = spec.payload
    deliver_model(output, work.staged, job.initial)
    check_delivered(work.staged, job.model, job.train, job.examples, job.model_path)
    work.facts.update({"model": _name(job.model), "bytes": weight_bytes(work.staged)})
    if job.train.precision == "fp8":
        work.facts["trained_in"] = "fp8"
    if job.train.validate_every:
        work.facts.update(_by_validation(read_json(output / HISTORY), job.train))


def _by_validation(curve: list[dict[str, Any]], train: Train) -> dict[str, str]:
    """The results of validation: the step where training ended early, and the step of the model's weights."""
    facts, last = {}, curve[-1]["step"]
    if train.patience and train.steps and last < train.steps:
        facts["ended_early"] = f"after {last:,} of {train.steps:,} steps"
    if train.keep_best:
        facts["weights_of"] = f"step {best_step(curve):,}"
    return facts


def _name(model: Model) -> str:
    """A model's name in the recipe: its type, factory or pretrained id."""
    if isinstance(model, ArchitectureModel):
        return str(model.type)
    return model.factory if isinstance(model, FactoryModel) else model.pretrained


def _record(work: Work, spec: JobSpec) -> AbstractContextManager[None]:
    """MLflow's nested run of the step, with the curve while it grows."""
    from understudy.registry.recorder import Recorder

    tags = {f"understudy.{role}": digest for role, digest in work.inputs.items()}
    return Recorder(work.run, work.tracking_uri, work.recipe.experiment, tags).follow(work.step, spec.metrics)
