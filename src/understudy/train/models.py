"""A training's initial model: built without memory, distributed over ranks, and loaded.

No rank allocates a whole model that does not fit: of transformers' models it allocates only its part.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from understudy.data.loader import Examples
from understudy.models.adapters import add_adapters, draw_adapters
from understudy.models.build import (
    empty_model,
    is_empty,
    materialize,
    move_buffers,
    probe_model,
    tied_weights,
)
from understudy.models.facts import Description, keeps_apart, read_facts
from understudy.models.files import check_files, read_weights
from understudy.models.float8 import convert_to_float8
from understudy.models.initial import draw_weights
from understudy.models.outputs import OutputShapes
from understudy.models.weight_files import weight_bytes
from understudy.parallel.apply import Spread, reshard
from understudy.parallel.layout import EXAMPLES, layout
from understudy.parallel.savers import Savers
from understudy.recipe import SavedModel
from understudy.train.descriptions import extras_of_job
from understudy.train.documents import check_takes_positions
from understudy.train.layers import start_sources
from understudy.train.memory import settle_freed_memory
from understudy.train.shapes import check_shapes, find_head
from understudy.train.staged import Staged, cut_into_stages

if TYPE_CHECKING:  # the format of a job's specification is no part of a training's step key
    from understudy.jobs.payload import TrainingJob

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Started:
    """The initial model, distributed over the ranks."""

    model: nn.Module
    """This rank's part."""
    aliases: set[str]
    """Second names of its tied weights."""
    staged: Staged | None
    """This rank's stages, with pipeline parallel."""
    shapes: OutputShapes


def initial_model(
    job: "TrainingJob", description: Description, examples: Examples, spread: Spread, processes: int
) -> Started:
    """Build the initial model, distributed over the ranks; each node has so many processes."""
    torch.manual_seed(job.seed)
    model = empty_model(description, job.model_path)
    if keeps_apart(read_facts(job.examples)):
        check_takes_positions(model, job.model_path)
    aliases = tied_weights(model)
    sources = start_sources(model, job.start, job.learner) if job.start else None
    settle_freed_memory(_share(job, model, spread), processes)
    if job.train.lora:
        add_adapters(model, job.train.lora, job.train_path)
    if job.train.precision == "fp8":
        _say_left(convert_to_float8(model, job.train_path), job.train_path)
    if spread.degrees.pp > 1:
        full_model = empty_model(description, job.model_path) if job.initial else None
        with probe_model(description, job.model_path) as probe:
            shapes = check_shapes(probe, examples, description, torch.device("cpu"), job.model_path, extras_of_job(job))
            inputs, _, _ = spread.own_positions(*examples.batch(np.zeros(EXAMPLES, dtype=np.int64)))
            cuts = layout(probe, inputs, job.train_path)
        staged = cut_into_stages(model, cuts, examples, spread, job.train, job.train_path)
        _fill(job, staged.rank_model, description, spread.device, full_model, sources)
        module = staged.settle(spread.device)
        draw_adapters(module, job.seed)
        staged.detect_head(spread.device)
        return Started(module, aliases, staged, shapes)
    if not is_empty(model):
        model.to(spread.device)
    model = spread.over_ranks(model, job.train.tensor_plan, job.train_path, Savers.of(job.train))
    full_model = empty_model(description, job.model_path) if job.train.lora else None
    _fill(job, model, description, spread.home, full_model, sources)
    move_buffers(model, spread.device)
    draw_adapters(model, job.seed)
    shapes = check_shapes(model, examples, description, spread.device, job.model_path, extras_of_job(job))
    find_head(model, examples, spread.device)
    reshard(model)
    return Started(spread.replicated(model), aliases, None, shapes)


def _say_left(names: list[str], path: str) -> None:
    if names and dist.get_rank() == 0:
        kinds = ", ".join(sorted({re.sub(r"\b\d+\b", "*", name) for name in names}))
        log.warning("%s.precision: in bf16, for their sizes or a shared weight: %s", path, kinds)


def _share(job: "TrainingJob", model: nn.Module, spread: Spread) -> int:
    """Bytes of a rank's weights, of a whole model and its teachers."""
    parts = spread.degrees.world_size // spread.degrees.dp_replicate
    weights = sum(parameter.nbytes for parameter in model.parameters())
    beside = [Path(teacher.folder) for teacher in job.teachers.values() if isinstance(teacher, SavedModel)]
    return (weights + sum(map(weight_bytes, beside))) // parts


def _fill(
    job: "TrainingJob",
    model: nn.Module,
    description: Description,
    device: torch.device,
    full_model: nn.Module | None,
    sources: Mapping[str, str] | None,
) -> None:
    """Load or initialise the weights of this rank's part of a model.

    Args:
        job: the job.
        model: this rank's part.
        description: the whole model's.
        device: the device of its weights.
        full_model: a model with all layers, if `model` has only some of them or further ones.
        sources: from start_sources(), if the model starts from layers of a teacher.
    """
    if job.start:
        read_weights(model, Path(job.start.folder), device, sources=sources)
    elif job.initial:
        check_files(job.initial, description)
        read_weights(model, job.initial, device, full_model)
    elif is_empty(model):
        materialize(model, device)
        draw_weights(model.get_submodule("net"), job.seed)
    else:
        model.to(device)
