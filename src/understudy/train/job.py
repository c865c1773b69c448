"""A training job, from its specification to a finished model's files."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from understudy.data.loader import Examples, Order, facts, open_split
from understudy.distill.objectives import LogitDistillation, Objective, cross_entropy
from understudy.errors import InputError, disk_errors
from understudy.jobs import attempts
from understudy.jobs.heartbeat import Pulse, has_to_leave, tell_agent
from understudy.jobs.specification import JobSpec
from understudy.models.build import build_model, tied_weights
from understudy.models.describe import describe
from understudy.models.files import DESCRIPTION, load_model, save_model
from understudy.parallel.apply import parallelize, shard, unwrapped
from understudy.parallel.checkpoint import Checkpoints, whole_state
from understudy.parallel.mesh import ParallelDegrees, degrees, device_mesh
from understudy.train.loop import Point, Training, train
from understudy.train.memory import keep_freed_memory
from understudy.train.optimizers import optimizer
from understudy.train.precision import precision
from understudy.train.shapes import check_shapes

MODEL_SECTION = {"teacher": "teacher.model", "distill": "student.model", "control": "student.model"}


def run(spec: JobSpec, pulse: Pulse | None = None) -> None:
    """This rank's part of the job.

    Args:
        spec: the job.
        pulse: told how far the rank is.

    Raises:
        InputError: the recipe does not fit the data or the machine.
        UnderstudyError: training failed; the message says where and how to go on.
    """
    pulse = pulse or Pulse(spec, int(os.environ["RANK"]))
    device = _device(spec)
    torch.set_num_threads(spec.threads)
    keep_freed_memory()
    pulse("meeting the others")
    with _process_group(device):
        spec = _entered(spec, pulse)
        pulse("loading")
        examples = Path(spec.examples)
        split = open_split(examples, "train")
        _try_others(spec, split)
        description = _description(spec, facts(examples))
        model, aliases = _initial_model(spec, description, device)
        check_shapes(model, split, description, device, MODEL_SECTION[spec.role])
        job = _training(spec, split, model, device, pulse)
        pulse("training")
        curve = train(job)
        pulse("saving", job.steps)
        _save(spec, job.model, description, aliases, curve)
        pulse("done", job.steps)


def _entered(spec: JobSpec, pulse: Pulse) -> JobSpec:
    """The specification with the attempt that all ranks are part of now."""
    if not spec.supervised:
        return spec
    world_size = dist.get_world_size()
    name: list[Any] = [attempts.begin(spec, world_size) if dist.get_rank() == 0 else ""]
    dist.broadcast_object_list(name, 0)
    spec = replace(spec, attempt=name[0], nodes=world_size // spec.processes)
    pulse.entered(spec)
    tell_agent(spec.attempt)
    return spec


def _try_others(spec: JobSpec, split: Examples) -> None:
    """Whether the models that come after this job fit the data too: hours later would be late to hear it."""
    cpu = torch.device("cpu")
    for where, section in spec.others.items():
        description = describe(section, facts(Path(spec.examples)), where)
        check_shapes(build_model(description, where), split, description, cpu, where)


def _training(spec: JobSpec, split: Examples, model: nn.Module, device: torch.device, pulse: Pulse) -> Training:
    """The model spread over the processes, and all that goes with it."""
    dtype = precision(spec.train["precision"], device)
    found = degrees(spec.train["strategy"], spec.nodes, spec.processes)
    mesh = device_mesh(found, device.type)
    objective = _objective(spec, split, device, found, mesh, dtype)
    model = parallelize(model, found, mesh, dtype)
    chosen = optimizer(model, spec.train["optimizer"])
    order = Order(len(split), spec.train["batch_size"], spec.seed)
    with disk_errors(spec.work):
        (spec.work / "checkpoints").mkdir(exist_ok=True)
    dist.barrier()
    return Training(
        model=model,
        objective=objective,
        optimizer=chosen,
        examples=split,
        order=order,
        settings=spec.train,
        steps=spec.train["steps"] or spec.train["epochs"] * order.steps_per_epoch,
        seed=spec.seed,
        device=device,
        precision=dtype,
        checkpoints=Checkpoints(spec.work / "checkpoints", model, chosen),
        has_to_stop=lambda: spec.stop_file.exists() or has_to_leave(),
        beat=lambda step: pulse("training", step),
        report=_Report(spec, split, order, device),
    )


def _device(spec: JobSpec) -> torch.device:
    if spec.device == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise InputError(f"{spec.section}.device: cuda is asked for, but torch sees no GPU here; set it to cpu")
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
    dist.destroy_process_group()  # not on an error: the others, whom that lets fail too, must not be heard first


def _description(spec: JobSpec, examples: dict[str, Any]) -> dict[str, Any]:
    if spec.initial:
        return dict(json.loads((Path(spec.initial) / DESCRIPTION).read_text()))
    return describe(spec.model, examples, MODEL_SECTION[spec.role])


def _initial_model(spec: JobSpec, description: dict[str, Any], device: torch.device) -> tuple[nn.Module, set[str]]:
    """The model to start from, the same on every rank, and the names of its tied weights."""
    torch.manual_seed(spec.seed)
    where = MODEL_SECTION[spec.role]
    model = load_model(Path(spec.initial), device) if spec.initial else build_model(description, where).to(device)
    return model, tied_weights(model)


def _objective(
    spec: JobSpec,
    examples: Examples,
    device: torch.device,
    found: ParallelDegrees,
    mesh: DeviceMesh,
    dtype: torch.dtype,
) -> Objective:
    """What the model learns from; the teacher is sharded as the student is."""
    if spec.distill is None:
        return cross_entropy
    assert spec.teacher is not None
    teacher = load_model(Path(spec.teacher), device)
    description = json.loads((Path(spec.teacher) / DESCRIPTION).read_text())
    check_shapes(teacher, examples, description, device, "teacher.model")
    if found.shards:
        shard(teacher, mesh if found.dp_replicate > 1 else mesh["dp_shard"], dtype)
    return LogitDistillation(teacher, spec.distill["temperature"], spec.distill["alpha"])


def _save(spec: JobSpec, model: nn.Module, description: dict[str, Any], aliases: set[str], curve: list[Point]) -> None:
    state = whole_state(unwrapped(model))
    if dist.get_rank() == 0:
        tokenizer = Path(spec.examples) / "tokenizer.json"
        with disk_errors(spec.output):
            spec.output.mkdir(exist_ok=True)
            kept = {name: tensor for name, tensor in state.items() if name not in aliases}
            save_model(spec.output, kept, description, tokenizer if tokenizer.exists() else None)
            (spec.output / "history.json").write_text(json.dumps(curve))
    dist.barrier()


class _Report:
    """Appends to the job's metrics file what the launcher shows and MLflow records."""

    def __init__(self, spec: JobSpec, examples: Examples, order: Order, device: torch.device) -> None:
        self._path, self._examples, self._order, self._device = spec.metrics, examples, order, device
        self._work = spec.work
        self._steps = spec.train["steps"] or spec.train["epochs"] * order.steps_per_epoch

    def __call__(self, points: list[Point], seconds: float) -> None:
        targets = sum(self._examples.targets(self._order.batch(point["step"] - 1)) for point in points)
        entry = {
            **points[-1],
            "steps": self._steps,
            "rate": targets / seconds,
            "memory": self._memory(),
            "time": time.time(),
        }
        if not self._work.is_dir():
            return  # another attempt goes on; the next checkpoint will say so
        with disk_errors(self._path), self._path.open("a") as stream:
            stream.write(json.dumps(entry) + "\n")

    def _memory(self) -> int:
        """Bytes: the most that the GPU held, or the process's resident set."""
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device)
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
