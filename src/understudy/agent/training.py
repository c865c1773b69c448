"""A rank's part of a training job."""

from dataclasses import asdict
from functools import partial
from pathlib import Path

from understudy.agent.profiling import Recording
from understudy.agent.surroundings import Surroundings
from understudy.jobs.payload import Training
from understudy.jobs.specification import JobSpec
from understudy.train.job import Callbacks, run
from understudy.train.training import nothing
from understudy.train.work import TrainingJob


def train(spec: JobSpec, payload: Training, surroundings: Surroundings) -> None:
    """Run this rank's part of a training. Raises the errors of train.job.run()."""
    callbacks = Callbacks(
        heartbeat=surroundings.heartbeat,
        must_stop=surroundings.must_stop,
        begin_attempt=surroundings.begin_attempt,
        join_attempt=surroundings.join_attempt,
        report=lambda report: surroundings.report(asdict(report)),
        around_step=partial(Recording, spec) if spec.profile else lambda course: nothing,
    )
    run(training_job(spec, payload), callbacks)


def training_job(spec: JobSpec, payload: Training) -> TrainingJob:
    """The training of a job specification."""
    return TrainingJob(
        model=payload.model,
        section=f"{payload.learner}.model",
        place=f"{payload.path}.train",
        resources=spec.section,
        train=payload.train,
        objectives=payload.objectives,
        seed=payload.seed,
        examples=Path(payload.examples),
        initial=Path(payload.initial) if payload.initial else None,
        teachers=payload.teachers,
        teacher_precision=payload.teacher_precision,
        teacher_shards=payload.teacher_shards,
        later_models=payload.later_models,
        student_objectives=payload.student_objectives,
        student_teachers=payload.student_teachers,
        student_train=payload.student_train,
        student_world=payload.student_world,
        measured_in=payload.measured_in,
        processes=spec.processes,
        threads=spec.threads,
        device=spec.device,
    )
