"""A training job: from its description and the caller's callbacks to a finished model's files.

It does not depend on the launcher. Its source is part of every training's step key, so code that only transports
messages or files is left to the caller.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer

from understudy.data.augmentation import Augmentation
from understudy.data.loader import Examples, Order, open_split
from understudy.errors import InputError, disk_errors
from understudy.models.adapter_files import save_adapters
from understudy.models.adapters import merged
from understudy.models.facts import HISTORY, Description, keeps_apart, read_facts
from understudy.models.files import save_model
from understudy.objectives.objective import Context, Objective, objective
from understudy.parallel.apply import Spread, reshard, unwrapped
from understudy.parallel.checkpoint import Checkpoints
from understudy.parallel.devices import over_devices
from understudy.recipe import SavedModel
from understudy.recipe.roles import section_of
from understudy.recipe.training_rules import NOTHING_TO_VALIDATE
from understudy.teachers.teacher import Teacher
from understudy.train.averages import Averages
from understudy.train.batches import check_batches, steps_of
from understudy.train.decay import exempt
from understudy.train.descriptions import degrees_of, description_of
from understudy.train.documents import check_learner, check_teacher
from understudy.train.frozen_teachers import frozen_teachers
from understudy.train.guard import Guard
from understudy.train.later_models import try_later_models
from understudy.train.learning import Learner, Whole
from understudy.train.local_steps import LocalSteps
from understudy.train.loop import train
from understudy.train.loss_scale import LossScale
from understudy.train.models import Started, initial_model
from understudy.train.optimizers import build_optimizer
from understudy.train.pipelined import Pipelined
from understudy.train.precision import precision
from understudy.train.reports import Report, Reporter
from understudy.train.resources import RankResources
from understudy.train.training import Around, Course, Point, Training, nothing
from understudy.train.validation import Validation

if TYPE_CHECKING:  # the format of a job's specification is no part of a training's step key
    from understudy.jobs.payload import TrainingJob


@dataclass(frozen=True)
class Callbacks:
    """A training's interface to its caller."""

    heartbeat: Callable[[str, int], None]
    """Called on every rank with its phase and the number of steps done (-1 before the first)."""
    must_stop: Callable[[], bool]
    """Called on every rank after each report; if true on any, all stop at a checkpoint."""
    begin_attempt: Callable[[int], str]
    """Called on the first rank with the number of ranks after rendezvous; returns the attempt's name."""
    join_attempt: Callable[[str], Path]
    """Called on every rank with that name; returns the folder for checkpoints (`checkpoints`) and the result
    (`output`)."""
    report: Callable[[Report], None]
    """Called on the first rank, about twice a second."""
    around_step: Callable[[Course], Around] = lambda course: nothing
    """Called on every rank before the first step; returns a function that returns each step's context."""


def run(job: "TrainingJob", resources: RankResources, callbacks: Callbacks) -> None:
    """Run this rank's part of the job.

    Args:
        job: the job.
        resources: of this rank.
        callbacks: the caller's callbacks.

    Raises:
        InputError: the recipe does not fit the data or the machine.
        UnderstudyError: training failed; the message has the place and the fix.
    """
    device = _device(resources)
    torch.set_num_threads(resources.threads)
    # Before each phase that may take long: a hang's message names the phase of each rank.
    callbacks.heartbeat("joining the process group", -1)
    with _process_group(device):
        folder = _joined(callbacks)
        callbacks.heartbeat("loading", -1)
        split = open_split(job.examples, "train")
        try_later_models(job, split, resources.device)
        description = description_of(job)
        spread = _spread(job, device, resources.processes)
        check_batches(description, split, job.train, spread.degrees, resources.device, job.path)
        started = initial_model(job, description, split, spread, resources.processes)
        training = _training(job, split, started, spread, folder, callbacks)
        callbacks.heartbeat("training", -1)
        curve = train(training)
        callbacks.heartbeat("saving", training.steps)
        _save(folder / "output", training, description, started.aliases, curve)
        callbacks.heartbeat("done", training.steps)


def _spread(job: "TrainingJob", device: torch.device, processes: int) -> Spread:
    settings = job.train
    numbers = precision(settings.precision, device)
    return Spread(
        degrees_of(job, processes),
        device,
        numbers,
        settings.pipeline,
        settings.compression,
        independent=settings.diloco is not None,
        offloaded="parameters" in settings.offload,
    )


def _joined(callbacks: Callbacks) -> Path:
    """The folder of the attempt that all ranks join."""
    name: list[Any] = [callbacks.begin_attempt(dist.get_world_size()) if dist.get_rank() == 0 else ""]
    dist.broadcast_object_list(name, 0)
    return callbacks.join_attempt(name[0])


def _training(
    job: "TrainingJob", split: Examples, started: Started, spread: Spread, folder: Path, callbacks: Callbacks
) -> Training:
    """The model, distributed over the processes, and everything to train it."""
    model = started.model
    teachers, shapes = frozen_teachers(job, split, spread)
    context = Context(job.train, job.seed, started.shapes, shapes, f"{job.path}.distill")
    student_objective = objective(job.objectives, context).to(spread.home)
    wrapped_objective = (
        spread.replicated(spread.sharded(student_objective))
        if list(student_objective.parameters())
        else student_objective
    )
    optimizer = _optimizer(job, model, wrapped_objective)
    local_steps = _local_steps(job, optimizer, spread)
    order = Order(len(split), job.train.batch_size, job.seed)
    steps = steps_of(job.train, order)
    learner = _learner(job, started, student_objective, wrapped_objective, tuple(teachers.values()), spread)
    _check_documents(job, learner, teachers, spread)
    return Training(
        job=job,
        model=model,
        learner=learner,
        optimizer=optimizer,
        averages=Averages(optimizer, job.train.average) if job.train.average else None,
        local_steps=local_steps,
        examples=split,
        augmentation=_augmentation(job),
        order=order,
        steps=steps,
        spread=spread,
        validation=_validation(job),
        guard=Guard(job.train.guard, spread.meshes.tp.size()) if job.train.guard else None,
        loss_scale=LossScale() if spread.precision is torch.float16 else None,
        checkpoints=_checkpoints(folder, _trained(model, wrapped_objective), optimizer, spread, local_steps),
        must_stop=callbacks.must_stop,
        heartbeat=lambda step: callbacks.heartbeat("training", step),
        report=Reporter(split, order, steps, spread.device, callbacks.report),
        around_step=callbacks.around_step(
            Course(steps, spread.device, spread.precision, lambda step: split.targets(order.batch(step)))
        ),
    )


def _optimizer(job: "TrainingJob", model: nn.Module, wrapped_objective: nn.Module) -> Optimizer:
    """The recipe's optimiser, for the parameters of the model and of its objective."""
    patterns, path = job.train.optimizer.no_decay, f"{job.train_path}.optimizer.no_decay"
    without_decay = None if patterns is None else exempt(model, wrapped_objective, patterns, path)
    parameters = [*model.parameters(), *wrapped_objective.parameters()]
    return build_optimizer(parameters, job.train.optimizer, without_decay)


def _check_documents(job: "TrainingJob", learner: Learner, teachers: Mapping[str, Teacher], spread: Spread) -> None:
    facts = read_facts(job.examples)
    if keeps_apart(facts):
        check_learner(learner, facts, spread, job.model_path)
        for name, teacher in teachers.items():
            if isinstance(job.teachers[name], SavedModel):
                check_teacher(teacher, facts, spread, section_of(name))


def _checkpoints(
    folder: Path, trained: nn.Module, optimizer: Optimizer, spread: Spread, local_steps: LocalSteps | None
) -> Checkpoints:
    """An attempt's checkpoints. Collective: call it on every rank."""
    path = folder / "checkpoints"
    with disk_errors(folder):
        path.mkdir(exist_ok=True)
    dist.barrier()
    rank_states = [*spread.rank_states, *([local_steps] if local_steps else [])]
    return Checkpoints(path, trained, optimizer, spread.meshes.copies.get_group(), rank_states)


def _learner(
    job: "TrainingJob",
    started: Started,
    student_objective: Objective,
    wrapped_objective: nn.Module,
    teachers: Sequence[Teacher],
    spread: Spread,
) -> Learner:
    if started.staged is None:
        # Only the learner gets the wrapper: checkpoints use the names of the unwrapped model's weights.
        model = over_devices(started.model, spread.device) if job.train.strategy == "dp" else started.model
        return Whole(model, student_objective, wrapped_objective, teachers, spread)
    return Pipelined(started.staged, started.model, student_objective, teachers, spread)


def _local_steps(job: "TrainingJob", optimizer: Optimizer, spread: Spread) -> LocalSteps | None:
    return LocalSteps(optimizer, job.train.diloco, spread.meshes.replicate.get_group()) if job.train.diloco else None


def _validation(job: "TrainingJob") -> Validation | None:
    """The recipe's validation, on a split that must not be empty."""
    if job.train.validate_every is None:
        return None
    examples = open_split(job.examples, "validation")
    if len(examples) == 0:
        raise InputError(f"{job.train_path}.validate_every: {NOTHING_TO_VALIDATE}")
    train = job.train
    assert train.validate_every is not None
    return Validation(examples, train.batch_size, train.validate_every, train.keep_best, train.patience)


def _augmentation(job: "TrainingJob") -> Augmentation | None:
    settings = job.train.augment
    return Augmentation(settings, job.seed, job.train.batch_size) if settings else None


def _device(resources: RankResources) -> torch.device:
    if resources.device == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise InputError(f"{resources.path}.device: cuda is asked for, but torch sees no GPU here; set it to cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    return device


@contextmanager
def _process_group(device: torch.device) -> Iterator[None]:
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    if os.environ["WORLD_SIZE"] == "1":
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
    else:
        dist.init_process_group(backend)
    yield
    dist.destroy_process_group()  # not on an error: other ranks would fail too, and might be reported first


def _trained(model: nn.Module, wrapped_objective: nn.Module) -> nn.Module:
    """All modules with parameters to checkpoint."""
    return (
        nn.ModuleDict({"model": model, "objective": wrapped_objective})
        if list(wrapped_objective.parameters())
        else model
    )


def _save(output: Path, training: Training, description: Description, aliases: set[str], curve: list[Point]) -> None:
    job, leads = training.job, dist.get_rank() == 0
    with disk_errors(output):
        if leads:
            shutil.rmtree(output, ignore_errors=True)  # an incomplete model, perhaps of more stages than now
            output.mkdir(exist_ok=True)
        dist.barrier()
        tokenizer = job.examples / "tokenizer.json"
        model = unwrapped(training.model)
        reshard(model)
        stages, copies = (mesh.get_group() for mesh in (training.spread.meshes.pp, training.spread.meshes.copies))
        if job.train.lora and job.train.lora.kept_apart:
            save_adapters(output, model, job.train.lora, job.model, read_facts(job.examples), stages)
        tensors = {name: tensor for name, tensor in merged(model).items() if name not in aliases}
        save_model(output, tensors, description, tokenizer if tokenizer.exists() else None, stages, copies)
        if leads:
            (output / HISTORY).write_text(json.dumps(curve))
    dist.barrier()
