"""A rank's part of an evaluation job: the ranks divide the test split, and start over if they were ended.

With a sharding strategy in the recipe they also shard the models' weights.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from understudy.agent.surroundings import Surroundings
from understudy.errors import InputError, Stopped, disk_errors
from understudy.evaluate.contents import RESULTS
from understudy.evaluate.measure import measure
from understudy.evaluate.shares import WHOLE, Share
from understudy.jobs.payload import Evaluation
from understudy.jobs.specification import JobSpec
from understudy.models.weight_files import weight_bytes
from understudy.parallel.apply import Spread
from understudy.recipe import degrees
from understudy.train.memory import settle_freed_memory

REPORTED = 0.5  # seconds between reports


def evaluate(spec: JobSpec, payload: Evaluation, surroundings: Surroundings) -> None:
    """Measure this rank's share of the test split, into the attempt's output.

    Raises:
        InputError: the test split is empty, or the job needs a GPU and there is none.
        UnderstudyError: a model does not match the recipe.
        Stopped: the rank was requested to end.
    """
    device = device_of(spec)
    torch.set_num_threads(spec.threads)
    surroundings.heartbeat("joining the process group", -1)
    with _share(spec, payload, torch.device(device)) as share:
        output = _output(spec, surroundings, share)
        surroundings.heartbeat("loading", -1)
        _settle(payload, share, spec.processes)
        with disk_errors(output):
            measure(
                {role: Path(model) for role, model in payload.models.items()},
                payload.digests,
                Path(payload.examples),
                payload.recipe,
                output,
                device,
                _progress(surroundings, share),
                Path(payload.records) if payload.records else None,
                {role: Path(folder, RESULTS) for role, folder in payload.known.items()},
                share,
            )
    surroundings.heartbeat("done", 0)


def device_of(spec: JobSpec) -> str:
    """This rank's device.

    Raises:
        InputError: the job needs a GPU and there is none.
    """
    if spec.device == "cpu":
        return "cpu"
    if not torch.cuda.is_available():
        raise InputError(f"{spec.section}.device: cuda is requested, but torch sees no GPU here; set it to cpu")
    device = f"cuda:{os.environ['LOCAL_RANK']}"
    torch.cuda.set_device(device)
    return device


@contextmanager
def _share(spec: JobSpec, payload: Evaluation, device: torch.device) -> Iterator[Share]:
    """This rank's share. Ranks exchange per-example numbers on CPUs, and shards on the models' device."""
    if spec.world_size == 1:
        yield WHOLE
        return
    mesh_degrees = degrees(payload.recipe.evaluate.strategy, spec.nodes, spec.processes, spec.section)
    dist.init_process_group("cpu:gloo,cuda:nccl" if mesh_degrees.shards and device.type == "cuda" else "gloo")
    spread = Spread(mesh_degrees, device, torch.float32) if mesh_degrees.shards else None
    yield Share(dist.get_rank(), dist.get_world_size(), spread)
    dist.barrier()  # the operator counts a job on several nodes as done as soon as one of them is
    dist.destroy_process_group()  # not on an error: the peers fail with it, and must not report theirs first


def _settle(payload: Evaluation, share: Share, processes: int) -> None:
    """Return the memory of freed all-gathered blocks to the system where memory is short."""
    if share.spread:
        weights = sum(weight_bytes(Path(folder)) for folder in payload.models.values())
        settle_freed_memory(weights // share.spread.degrees.dp_shard, processes)


def _output(spec: JobSpec, surroundings: Surroundings, share: Share) -> Path:
    """A new folder for the result, the same on all ranks."""
    name: list[Any] = [surroundings.begin_attempt(spec.world_size) if share.rank == 0 else ""]
    if share.world_size > 1:
        dist.broadcast_object_list(name, 0)
    output = surroundings.join_attempt(name[0]) / "output"
    if share.rank == 0:
        shutil.rmtree(output, ignore_errors=True)  # left by an attempt that was ended
        with disk_errors(output):
            output.mkdir()
    if share.world_size > 1:
        dist.barrier()
    return output


def _progress(surroundings: Surroundings, share: Share) -> Callable[[float, float, str], None]:
    """A callback for each batch: it reports progress, and raises Stopped if the rank has to end."""
    reported = 0.0

    def tell(done: float, total: float, unit: str) -> None:
        nonlocal reported
        if surroundings.must_stop():
            raise Stopped("measuring was stopped")
        if time.monotonic() - reported >= REPORTED:
            reported = time.monotonic()
            surroundings.heartbeat("measuring", int(done))
            if share.rank == 0:
                surroundings.report({"step": done, "steps": total, "unit": unit})

    return tell
