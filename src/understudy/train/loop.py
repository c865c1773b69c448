"""The training loop: the same for every model, objective and strategy.

The loss of a step is the sum over all targets of the global batch, divided by their number, whatever each rank and
micro-batch got of it. Every rank can count them without asking, because what is read follows from the step number.
Random numbers follow from (seed, step, rank) too, so there is no generator to save, and a run that resumes at a step
continues bit for bit.
"""

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NotRequired, TypedDict

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from understudy.data.augmentation import Augmentation
from understudy.data.loader import Examples, Indices, Order
from understudy.errors import Stopped, UnderstudyError
from understudy.parallel.apply import Spread
from understudy.parallel.checkpoint import Checkpoints
from understudy.recipe import Train
from understudy.train.averages import Averages
from understudy.train.learning import Learner, Part
from understudy.train.optimizers import learning_rate, set_learning_rate
from understudy.train.validation import Validation

REPORT_SECONDS = 0.5
CURVE_POINTS = 5000


class Point(TypedDict):
    """One step on the training curve."""

    step: int
    loss: float
    learning_rate: float
    grad_norm: float
    validation_loss: NotRequired[float]
    validation_accuracy: NotRequired[float]


class Progress(TypedDict):
    """What a checkpoint holds beside model and optimiser."""

    history: list[Point]


@dataclass
class Training:
    """Everything that a training run consists of."""

    model: nn.Module
    """This rank's layers."""
    learner: Learner
    """The model on all ranks, with what it learns from."""
    optimizer: Optimizer
    averages: Averages | None
    """Of the weights, where they are what is wanted."""
    examples: Examples
    augmentation: Augmentation | None
    """What changes inputs at random."""
    order: Order
    settings: Train
    steps: int
    seed: int
    spread: Spread
    """Over which ranks, and how."""
    validation: Validation | None
    checkpoints: Checkpoints
    must_stop: Callable[[], bool]
    """Asked on every rank after each report; one that says yes stops all of them, at a checkpoint."""
    heartbeat: Callable[[int], None]
    """Called on every rank with the steps done, as often as report."""
    report: Callable[[list[Point], float], None]
    """Called on the first rank with the points since the last call and the seconds that they took."""
    history: list[Point] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        """Whether it ends before its last step."""
        return self.validation is not None and self.validation.is_over(self.history)


def train(job: Training) -> list[Point]:
    """Train from the newest checkpoint, or from the start, to the last step, or until validation says that it is over.

    Returns:
        The whole training curve, on every rank. The model is the last one, or the one that validation found best.

    Raises:
        Stopped: the stop file was there; a checkpoint was taken.
        UnderstudyError: the loss is no longer a number; the message names step, rank and last checkpoint.
    """
    start = _resume(job)
    recent, over = _Recent(job, start), job.is_over
    job.learner.train(mode=True)
    for step in range(start, job.steps):
        if over:
            break
        rate = learning_rate(step, job.steps, job.settings.optimizer.learning_rate, job.settings.schedule)
        set_learning_rate(job.optimizer, rate)
        recent.add(rate, *_step(job, step))
        last, due = step + 1 == job.steps, (step + 1) % job.settings.checkpoint_every == 0
        validated = job.validation is not None and job.validation.is_due(step + 1, job.steps)
        if last or due or validated or recent.is_due():
            stop = recent.flush(step + 1)
            if validated:
                _validate(job, step + 1)
                over = job.is_over
                last = last or over
            if stop and not last:
                _save(job, step + 1)
                job.checkpoints.finish()
                raise Stopped(f"stopped at step {step + 1} of {job.steps}, at a checkpoint")
        if due or last:
            _save(job, step + 1)
        else:
            job.checkpoints.finish_if_written()
    job.checkpoints.finish()
    if job.validation and job.validation.keep_best:
        job.checkpoints.load_best(job.validation.best(job.history))
    elif job.averages:
        job.averages.swap()
    return job.history


def _validate(job: Training, step: int) -> None:
    """Measure the model, and keep its weights if no earlier ones were better."""
    assert job.validation is not None
    if job.averages:
        job.averages.swap()
    measured = job.validation.measure(job.learner, job.spread, lambda: job.heartbeat(step))
    job.history[-1]["validation_loss"], job.history[-1]["validation_accuracy"] = measured
    if job.validation.keep_best and job.validation.best(job.history) == step:
        job.checkpoints.save_best(step)
    if job.averages:
        job.averages.swap()


def _resume(job: Training) -> int:
    step = job.checkpoints.latest()
    if step is None:
        return 0
    progress: Progress = json.loads(job.checkpoints.load(step))
    job.history = progress["history"]
    return step


def _save(job: Training, step: int) -> None:
    """Begin a checkpoint. Model and optimiser are all that it needs beside the curve: see the module's docstring."""
    progress: Progress = {"history": job.history}
    job.checkpoints.save(step, json.dumps(progress))


def _step(job: Training, step: int) -> tuple[Tensor, Tensor]:
    """One optimiser step: this rank's part of the loss, and the gradients' norm."""
    seed_generators(step_seed(job.seed, step, job.spread.meshes.loss.get_local_rank()), job.spread.device)
    batch = job.order.batch(step)
    reading, count = job.spread.meshes.batch, job.settings.gradient_accumulation_steps
    places = job.order.places(reading.get_local_rank(), reading.size(), count)
    parts = (_part(job, step, batch, place) for place in places)
    total = job.learner.gradients(parts, count, job.examples.targets(batch))
    norm = job.learner.clip(job.settings.max_grad_norm)
    job.optimizer.step()
    if job.averages:
        job.averages.update(step)
    job.optimizer.zero_grad(set_to_none=True)
    return total, norm


def _part(job: Training, step: int, batch: Indices, place: slice) -> Part:
    """The examples at a place in a batch, as the step sees them."""
    indices = batch[place]
    inputs, labels = job.examples.batch(indices if len(indices) else batch[:1])
    if job.augmentation:
        inputs = job.augmentation(inputs, step, place)
    inputs, labels = (tensor.to(job.spread.device, non_blocking=True) for tensor in (inputs, labels))
    return Part(inputs, labels, counts=len(indices) > 0)


def seed_generators(seed: int, device: torch.device) -> None:
    """Seed the generators that a training step draws from: the CPU's, and the device's.

    torch.manual_seed does this for every kind of device, and where one is not initialised it formats the whole stack
    to tell later who asked: half a millisecond a step.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)


def step_seed(seed: int, step: int, rank: int) -> int:
    """The seed of a rank's random numbers within a step."""
    digest = hashlib.blake2b(f"{seed} {step} {rank}".encode(), digest_size=7).digest()
    return int.from_bytes(digest)


class _Recent:
    """The steps since the last report: kept on the device, summed over ranks once, seldom enough to cost nothing."""

    def __init__(self, job: Training, start: int) -> None:
        self._job, self._first = job, start
        self._losses: list[Tensor] = []
        self._norms: list[Tensor] = []
        self._rates: list[float] = []
        self._interval = 1
        self._since = time.perf_counter()

    def add(self, rate: float, loss: Tensor, norm: Tensor) -> None:
        self._rates.append(rate)
        self._losses.append(loss)
        self._norms.append(norm.detach())

    def is_due(self) -> bool:
        return len(self._rates) >= self._interval

    def flush(self, steps: int) -> bool:
        """Add the steps to the history, and report them. The answer, the same on every rank: is a stop wanted?"""
        losses = torch.stack(self._losses).float().cpu()
        norms = torch.stack(self._norms).float().cpu()
        self._refuse_nan(losses, norms)
        elapsed = time.perf_counter() - self._since
        # Summed over ranks: the losses are shares of one sum. Norms are the same on every rank already.
        summed = losses.double()
        dist.all_reduce(summed, group=self._job.spread.meshes.loss.get_group())
        shared = torch.tensor([elapsed, float(self._job.must_stop())], dtype=torch.double)
        dist.all_reduce(shared)
        points = [
            Point(step=self._first + place + 1, loss=loss, learning_rate=rate, grad_norm=norm)
            for place, (loss, rate, norm) in enumerate(zip(summed.tolist(), self._rates, norms.tolist(), strict=True))
        ]
        self._job.history += [point for point in points if self._is_kept(point)]
        if dist.get_rank() == 0:
            self._job.report(points, elapsed)
        self._job.heartbeat(steps)
        # From the mean over ranks, which all of them know: each has to come to the same interval, or they would meet in
        # different collectives.
        pace = shared[0].item() / dist.get_world_size() / len(points)
        self._interval = max(1, int(REPORT_SECONDS / max(pace, 1e-6)))
        self._first, self._since = steps, time.perf_counter()
        self._losses, self._norms, self._rates = [], [], []
        return bool(shared[1].item())

    def _is_kept(self, point: Point) -> bool:
        """A curve has some thousand points, however long the training is."""
        step, steps, validation = point["step"], self._job.steps, self._job.validation
        validated = validation is not None and validation.is_due(step, steps)
        return step % -(-steps // CURVE_POINTS) == 0 or step == steps or validated

    def _refuse_nan(self, losses: Tensor, norms: Tensor) -> None:
        # Told before the checkpoint that this report may lead to: one with NaN in it would be the one to resume from.
        # Every rank says its own first bad step in a place of its own, so that the sum tells them apart.
        found = torch.zeros(2, dist.get_world_size(), dtype=torch.long)
        found[:, dist.get_rank()] = torch.tensor([self._first_bad(losses), self._first_bad(norms)])
        dist.all_reduce(found)
        by_rank = found[0] if found[0].any() else found[1]  # the loss says which rank; its gradient is NaN on all
        if not by_rank.any():
            return
        step = int(by_rank[by_rank > 0].min())
        ranks = ", ".join(str(rank) for rank, value in enumerate(by_rank.tolist()) if value == step)
        self._job.checkpoints.finish()
        last = self._job.checkpoints.latest()
        kept = f"the last good checkpoint is step {last}" if last else "there is no checkpoint yet"
        raise UnderstudyError(
            f"the loss or its gradient is not a number any more at step {step}, on rank {ranks}; {kept}. "
            "A smaller learning rate, a warm-up or max_grad_norm usually helps."
        )

    def _first_bad(self, values: Tensor) -> int:
        """The first step, counted from 1, whose value is not finite; 0 for none."""
        bad = ~values.isfinite()
        return self._first + int(bad.float().argmax()) + 1 if bad.any() else 0
