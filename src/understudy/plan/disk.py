"""Disk space of a run in the store: models, which stay, and each training's checkpoints, which its end removes."""

from dataclasses import dataclass

from understudy.plan.estimate import Estimate
from understudy.plan.job import Job
from understudy.plan.lower_bounds import AT_ONCE, saves
from understudy.plan.weights import weights_of


@dataclass(frozen=True)
class Disk:
    """Bytes of a training in the store."""

    model: int
    """Of the finished model's weights."""
    checkpoint: int
    checkpoints: int
    """The most that exist at the same time."""
    best: int
    """Of the best weights so far, if the recipe keeps them; without those that replace them."""

    @property
    def most(self) -> int:
        """The peak: while the last checkpoint is written, or while the model is copied out of the job's folder."""
        running = self.checkpoints * self.checkpoint + 2 * self.best
        ending = min(self.checkpoints, AT_ONCE - 1) * self.checkpoint + self.best + 2 * self.model
        return max(running, ending)


def disk(job: Job, estimate: Estimate) -> Disk:
    """A training's disk space in the store."""
    train = job.planned.train
    model = weights_of(job.planned.model, job.planned.settings.train_path).files
    count = saves(train)
    at_once = AT_ONCE if count is None else min(AT_ONCE, count)
    return Disk(model, job.checkpoint(estimate), at_once, model if train.keep_best else 0)
