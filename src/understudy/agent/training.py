"""A rank's part of a training job."""

from dataclasses import asdict
from functools import partial

from understudy.agent.profiling import Recording
from understudy.agent.surroundings import Surroundings
from understudy.jobs.payload import TrainingJob
from understudy.jobs.specification import JobSpec
from understudy.train.job import Callbacks, run
from understudy.train.resources import RankResources
from understudy.train.training import nothing


def train(spec: JobSpec, job: TrainingJob, surroundings: Surroundings) -> None:
    """Run this rank's part of a training. Raises the errors of train.job.run()."""
    callbacks = Callbacks(
        heartbeat=surroundings.heartbeat,
        must_stop=surroundings.must_stop,
        begin_attempt=surroundings.begin_attempt,
        join_attempt=surroundings.join_attempt,
        report=lambda report: surroundings.report(asdict(report)),
        around_step=partial(Recording, spec) if spec.profile else lambda course: nothing,
    )
    run(job, RankResources(spec.processes, spec.threads, spec.device, spec.section), callbacks)
