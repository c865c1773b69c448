"""A rank's part of a job that caches a teacher's logits: the ranks divide the examples, and keep what is written."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from understudy.agent.surroundings import Surroundings
from understudy.data.loader import Examples, open_split
from understudy.errors import InputError, Stopped, disk_errors
from understudy.evaluate.answers import batch_size
from understudy.evaluate.loading import kind_of, load_models
from understudy.jobs.payload import LogitCaching
from understudy.jobs.specification import JobSpec
from understudy.models.facts import keeps_apart, output_size, read_facts
from understudy.models.trust import trusted_description
from understudy.parallel.apply import Spread
from understudy.recipe import degrees
from understudy.recipe.roles import section_of
from understudy.teachers.caching import Cached, cache_logits
from understudy.teachers.in_memory import ModelTeacher
from understudy.train.documents import check_takes_positions, check_teacher

REPORTED = 0.5  # seconds between reports


def cache(spec: JobSpec, payload: LogitCaching, surroundings: Surroundings) -> None:
    """Cache this rank's share of the logits, in the attempt's output.

    Raises:
        InputError: the job needs a GPU and there is none, or the teacher does not fit the data.
        Stopped: the rank was requested to end; what is written is kept.
    """
    device = _device(spec)
    torch.set_num_threads(spec.threads)
    surroundings.heartbeat("joining the process group", -1)
    with _process_group(device):
        output = _output(spec, surroundings)
        surroundings.heartbeat("loading", -1)
        split, facts = open_split(Path(payload.examples), "train"), read_facts(Path(payload.examples))
        spread = Spread(degrees(payload.evaluate.strategy, spec.nodes, spec.processes), device, torch.float32)
        model = _teacher(payload, spread)
        settings = Cached(
            payload.cache,
            payload.temperature,
            output_size(facts),
            batch_size(payload.evaluate.batch_size, facts),
            device,
            dist.get_rank(),
            dist.get_world_size(),
            bool(spread.degrees.shards),
        )
        with disk_errors(output):
            cache_logits(model, split, settings, output, payload.facts, _progress(surroundings, split))
    surroundings.heartbeat("done", 0)


def _teacher(payload: LogitCaching, spread: Spread) -> nn.Module:
    """The teacher, whole or in shards, which keeps packed documents apart if there are any."""
    folder, path = Path(payload.teacher.folder), section_of(payload.name)
    examples = Path(payload.examples)
    description = trusted_description(folder, payload.teacher.model, examples, path)
    kind = kind_of(payload.evaluate.precision, spread.device)
    shards = spread if spread.degrees.shards else None
    model = load_models({payload.name: folder}, {payload.name: description}, spread.device, shards, kind)[payload.name]
    facts = read_facts(examples)
    if keeps_apart(facts):
        check_takes_positions(model, path)
        check_teacher(ModelTeacher(model, frozenset()), facts, spread, path)
    return model


def _device(spec: JobSpec) -> torch.device:
    if spec.device == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise InputError(f"{spec.section}.device: cuda is requested, but torch sees no GPU here; set it to cpu")
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
    dist.destroy_process_group()  # not on an error: the peers fail with it, and must not report theirs first


def _output(spec: JobSpec, surroundings: Surroundings) -> Path:
    """The attempt's folder for the result, with the parts of earlier attempts."""
    name: list[Any] = [surroundings.begin_attempt(dist.get_world_size()) if dist.get_rank() == 0 else ""]
    dist.broadcast_object_list(name, 0)
    output = surroundings.join_attempt(name[0]) / "output"
    with disk_errors(output):
        output.mkdir(exist_ok=True)
    dist.barrier()
    return output


def _progress(surroundings: Surroundings, examples: Examples) -> Callable[[int], None]:
    """A callback for examples done: it reports progress, and raises Stopped if the rank has to end."""
    done, reported = 0, 0.0

    def advance(count: int) -> None:
        nonlocal done, reported
        done += count
        if surroundings.must_stop():
            raise Stopped("caching was stopped")
        if time.monotonic() - reported >= REPORTED or done == len(examples):
            reported = time.monotonic()
            surroundings.heartbeat("caching", done)
            if dist.get_rank() == 0:
                surroundings.report({"step": done, "steps": len(examples), "unit": "examples"})

    return advance
