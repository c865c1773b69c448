"""The training loop: the same for every model, objective and strategy.

A step's loss is the sum over all targets of the global batch, divided by their number, however ranks and micro-batches
split it. Every rank counts them without communication, because the data follows from the step number. Random numbers
follow from (seed, step, rank) too, so there is no generator to save, and a run that resumes at a step continues bit for
bit. After a guard has passed over n batches, both follow from the step number plus n.
"""

import hashlib
import json

import numpy as np
import torch
from torch import Tensor

from understudy.data.loader import Indices
from understudy.data.mixup import mix
from understudy.errors import Stopped, UnderstudyError
from understudy.models.buffers import Buffers
from understudy.objectives.batch import Mixed
from understudy.train.curve import Recent
from understudy.train.guard import Mark
from understudy.train.learning import Part
from understudy.train.loss_scale import Overflow
from understudy.train.marks import mark
from understudy.train.optimizers import learning_rate, set_learning_rate
from understudy.train.training import Marks, Point, Progress, Training
from understudy.train.validated import best_step


def train(job: Training) -> list[Point]:
    """Train from the newest checkpoint, or from the start, to the last step, or until validation ends it early.

    Returns:
        The whole training curve, on every rank. The model has its best weights by validation, else the EMA or the last.

    Raises:
        Stopped: a stop was requested; a checkpoint to resume from exists.
        UnderstudyError: the loss is not finite, and the message names step, rank and last checkpoint; or a rollback of
            the guard fails.
    """
    step = _resume(job)
    recent, over = Recent(job, step), job.is_over
    job.learner.train(mode=True)
    while step < job.steps and not over:
        rate = learning_rate(step, job.steps, job.settings.optimizer.learning_rate, job.settings.schedule)
        set_learning_rate(job.optimizer, rate)
        with job.around_step(step):
            loss, norm = _step(job, step)
        step += 1
        recent.add(rate, loss, norm, _marks(job, step))
        if job.guard and job.guard.must_roll_back:
            step = _go_back(job, recent, step)
        else:
            over = _report_and_save(job, recent, step)
    job.checkpoints.finish()
    if job.validation and job.validation.keep_best:
        job.checkpoints.load_best(best_step(job.history))
    elif job.averages:
        job.averages.swap()
    return job.history


def _report_and_save(job: Training, recent: Recent, step: int) -> bool:
    """Report, validate and save after a step, as due. Return whether the training is over."""
    last = step == job.steps
    # A skipped step leaves no state to roll back to; and its weights were validated, or will be.
    calm = last or job.guard is None or job.guard.is_calm
    is_due = calm and step % job.settings.checkpoint_every == 0
    validated = calm and job.validation is not None and job.validation.is_due(step, job.steps)
    if last or is_due or validated or recent.is_due():
        stop = recent.flush(step)
        if validated:
            best = _validate(job, step)
            is_due = is_due or (best and job.guard is not None)  # a rollback to before it would lose the best weights
            last = last or job.is_over
        if stop and not last:
            raise _stopped(job, step, calm)
    if is_due or last:
        _save(job, step)
    else:
        job.checkpoints.finish_if_written()
    return last


def _stopped(job: Training, step: int, calm: bool) -> Stopped:
    if calm:
        _save(job, step)
    job.checkpoints.finish()
    checkpoint = "" if calm else f" of step {job.checkpoints.latest()}, since steps are being skipped"
    return Stopped(f"stopped at step {step} of {job.steps}, at a checkpoint{checkpoint}")


def _validate(job: Training, step: int) -> bool:
    """Validate the model, and save its weights if they are the best so far. Return whether they were saved."""
    assert job.validation is not None
    if job.averages:
        job.checkpoints.copied()
        job.averages.swap()
    measured = job.validation.measure(job.learner, job.spread, lambda: job.heartbeat(step))
    job.history[-1]["validation_loss"], job.history[-1]["validation_accuracy"] = measured
    best = job.validation.keep_best and best_step(job.history) == step
    if best:
        job.checkpoints.save_best(step)
    if job.averages:
        job.averages.swap()
    return best


def _resume(job: Training) -> int:
    step = job.checkpoints.latest()
    if step is not None:
        progress = _load(job, step)
        if job.guard:
            job.guard.load(progress["guard"])
        return step
    if job.guard:
        _save(job, 0)  # for a rollback
    return 0


def _go_back(job: Training, recent: Recent, step: int) -> int:
    """Load the last checkpoint, from before the skipped steps; return its step."""
    assert job.guard is not None
    recent.flush(step)
    job.checkpoints.finish()
    back = job.checkpoints.latest()
    if back is None:
        raise UnderstudyError(f"there is no sound checkpoint to go back to from step {step}; run again")
    job.guard.go_back(step, back, _load(job, back)["guard"])
    recent.start(back)
    return back


def _load(job: Training, step: int) -> Progress:
    progress: Progress = json.loads(job.checkpoints.load(step))
    job.history = progress["history"]
    if job.loss_scale and "loss_scale" in progress:  # absent if earlier steps used another precision
        job.loss_scale.load(progress["loss_scale"])
    return progress


def _save(job: Training, step: int) -> None:
    """Start a checkpoint. Besides the curve it needs only model and optimiser: see the module's docstring."""
    progress = Progress(history=job.history)
    if job.guard:
        progress["guard"] = job.guard.state_dict()
    if job.loss_scale:
        progress["loss_scale"] = job.loss_scale.state_dict()
    job.checkpoints.save(step, json.dumps(progress))


def _step(job: Training, step: int) -> tuple[Tensor, Tensor]:
    """One optimiser step, unless it is skipped; return this rank's share of the loss, and the gradient norm."""
    position = step + (job.guard.passed if job.guard else 0)
    buffers = Buffers(job.model) if job.guard or job.loss_scale else None  # for a step that may be skipped
    seed_generators(step_seed(job.seed, position, job.spread.meshes.loss.get_local_rank()), job.spread.device)
    with mark("data"):
        batch = job.order.batch(position)
    reading, count = job.spread.meshes.batch, job.settings.gradient_accumulation_steps
    slices = job.order.places(reading.get_local_rank(), reading.size(), count)
    parts = (_part(job, position, batch, part) for part in slices)
    scale = job.loss_scale.value if job.loss_scale else 1.0
    targets = max(job.examples.targets(batch), 1)  # of texts whose words have no token there may be none
    job.learner.begin_step(step, job.steps)
    total = job.learner.gradients(parts, count, targets, scale)
    with mark("optimizer"):
        norm = _update(job, step, total, buffers)
    return total, norm


def _update(job: Training, step: int, total: Tensor, buffers: Buffers | None) -> Tensor:
    """Apply the gradients, unless the step is skipped; return their norm."""
    if job.loss_scale:
        job.loss_scale.unscale(job.optimizer)
    norm = job.learner.clip(job.settings.max_grad_norm)
    if _is_taken(job, step, total, norm):
        job.checkpoints.copied()
        job.optimizer.step()
        if job.local_steps:
            job.local_steps.after(step + 1, job.steps)
        if job.averages:
            job.averages.update(step)
    elif buffers:
        buffers.restore()
    job.optimizer.zero_grad(set_to_none=True)
    return norm


def _is_taken(job: Training, step: int, loss: Tensor, norm: Tensor) -> bool:
    """Whether the optimiser takes the step, the same on every rank."""
    fits = job.loss_scale is None or job.loss_scale.allows(norm)
    # Overflow at a new scale is no fault of the weights, for which the guard would roll back.
    return (job.guard is None or job.guard.allows(step + 1, loss, norm if fits else torch.zeros_like(norm))) and fits


def _marks(job: Training, step: int) -> Marks:
    """The marks of a step, counted from 1."""
    guarded = job.guard.mark(step) if job.guard else Mark()
    scaled = job.loss_scale.mark if job.loss_scale else Overflow()
    return Marks(**guarded, **scaled)


def _part(job: Training, position: int, batch: Indices, part: slice) -> Part:
    """A slice of a batch, as the step at this position in the data uses it."""
    with mark("data"):
        return _read(job, position, batch, part)


def _read(job: Training, position: int, batch: Indices, part: slice) -> Part:
    """Read and augment a part of a batch. An empty part repeats the batch's first examples, which do not count."""
    rows = np.arange(len(batch))[part]
    counts = len(rows) > 0
    if not counts:  # two examples, if a full part has two: BatchNorm cannot train on one
        rows = np.zeros(min(2, part.stop - part.start), dtype=np.int64)
    inputs, labels = _augmented_batch(job, position, batch, rows)
    mixed = None
    if job.settings.augment and job.settings.augment.mixup:
        mixup = mix(job.settings.augment.mixup, job.seed, position, len(batch))
        partners, partner_labels = _augmented_batch(job, position, batch, mixup.partners[rows])
        inputs, mixed = mixup.images(inputs, partners), Mixed(partner_labels.to(job.spread.device), mixup.share)
    inputs, labels = (tensor.to(job.spread.device, non_blocking=True) for tensor in (inputs, labels))
    positions = job.examples.positions(batch[rows])
    if positions is not None:
        positions = positions.to(job.spread.device, non_blocking=True)
    return Part(inputs, labels, counts, mixed, positions, torch.from_numpy(batch[rows]))


def _augmented_batch(job: Training, position: int, batch: Indices, rows: Indices) -> tuple[Tensor, Tensor]:
    """Augmented inputs, and labels, of rows of a batch."""
    inputs, labels = job.examples.batch(batch[rows])
    return job.augmentation(inputs, position, rows) if job.augmentation else inputs, labels


def seed_generators(seed: int, device: torch.device) -> None:
    """Seed the generators that a training step draws from: the CPU's, and the device's.

    torch.manual_seed seeds every kind of device, and for an uninitialised one it formats the whole stack for later
    messages: half a millisecond a step.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)


def step_seed(seed: int, step: int, rank: int) -> int:
    """The seed of a rank's random numbers within a step."""
    digest = hashlib.blake2b(f"{seed} {step} {rank}".encode(), digest_size=7).digest()
    return int.from_bytes(digest)
