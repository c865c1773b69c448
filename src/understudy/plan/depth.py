"""Traces of deep models, extrapolated from shallow ones: each further block adds as much as one more of a few.

A language model's blocks are alike, and its trace mostly repeats one block. Peak memory, computation and traffic grow
linearly with the number of blocks, from the first few on.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from understudy.models.build import probe_model
from understudy.models.facts import Description
from understudy.objectives.objective import extras_of
from understudy.parallel.blocks import blocks
from understudy.parallel.layout import boundaries
from understudy.parallel.pipeline import homes
from understudy.plan.layouts import layout_with
from understudy.plan.ledger import Kind, Peak
from understudy.plan.planned import Planned
from understudy.plan.repeated import BlockIncrement
from understudy.plan.trace import Traced, traces
from understudy.recipe import Degrees, Lora
from understudy.recipe.roles import section_of

FEW = 4
"""Blocks that are traced, in each stage and in each teacher. With two, the block that is gathered ahead and the block
that is freed are the same ones, and the next block adds more than further ones."""


@dataclass(frozen=True)
class Depth:
    """The number of a model's identical blocks, and the setting of its configuration for it."""

    blocks: int
    setting: str

    def cut(self, description: Description, count: int) -> Description:
        """The same model with so many blocks."""
        assert description["kind"] == "transformers"
        config = dict(description["config"])
        for name, value in config.items():
            if isinstance(value, list) and len(value) == self.blocks:
                config[name] = value[:count]
        changed: Any = {**description, "config": {**config, self.setting: count}}
        return changed  # type: ignore[no-any-return]


def depth(description: Description, path: str) -> Depth | None:
    """A model's depth; None if its blocks are not all alike, or are built by custom code."""
    if description["kind"] != "transformers" or description.get("code"):
        return None
    from transformers import AutoConfig

    config = description["config"]
    settings = AutoConfig.for_model(**config)
    setting = settings.attribute_map.get("num_hidden_layers", "num_hidden_layers")
    count = getattr(settings, setting, None)
    with probe_model(description, path) as model:
        model_blocks = blocks(model)
    shapes = {tuple((name, weight.shape) for name, weight in block.named_parameters()) for block in model_blocks}
    lists = [value for value in config.values() if isinstance(value, list) and len(value) == count]
    if count != len(model_blocks) or len(shapes) != 1 or any(value != value[:1] * len(value) for value in lists):
        return None
    return Depth(count, setting)


Depths = tuple[Depth | None, Mapping[str, Depth | None]]
"""Depths of a model and of its teachers, by name."""


def depths(planned: Planned) -> Depths:
    """The depths of a training's models; unknown where an objective compares their layers."""
    if extras_of(planned.settings.objectives):
        return None, {}
    teachers = {
        name: depth(teacher, section_of(name))
        for name, teacher in planned.teachers.items()
        if name not in planned.cached
    }
    return depth(planned.model, planned.settings.train_path) if _trains_alike(planned.train.lora) else None, teachers


def _trains_alike(lora: Lora | None) -> bool:
    """Whether the same part of each block is trained: no LoRA pattern may match block numbers."""
    return lora is None or not re.search(r"[\d\[?]", " ".join((*lora.modules, *lora.whole)))


def deep_traces(
    planned: Planned, degrees: Degrees, model_depths: Depths, device: str, precision: torch.dtype
) -> list[Traced]:
    """As traces(), in a fraction of the time where blocks are alike.

    Args:
        planned: the training.
        degrees: its degrees.
        model_depths: the depths of the training's models.
        device: cpu or cuda, for its allocator.
        precision: of matrix products.

    Raises:
        InputError: the model cannot be spread with these degrees.
    """
    student_depth, teacher_depths = model_depths
    per_rank = planned.train.pipeline.stages_per_rank if degrees.pp > 1 else 1
    stages = degrees.pp * per_rank
    if student_depth is None or student_depth.blocks <= FEW * stages:
        return traces(planned, degrees, device, precision)

    model = student_depth.cut(planned.model, FEW * stages)
    deep = {name: teacher_depth for name, teacher_depth in teacher_depths.items() if teacher_depth}
    cut = {name: teacher_depth.cut(planned.teachers[name], FEW) for name, teacher_depth in deep.items()}
    teachers = {**planned.teachers, **cut}
    shallow = traces(replace(planned, model=model, teachers=teachers), degrees, device, precision, even=True)
    further = {name: teacher_depth.blocks - FEW for name, teacher_depth in deep.items()}
    return [
        _extrapolated(
            few_blocks,
            [
                (few_blocks.student_block, share / per_rank - FEW),
                *((few_blocks.teacher_blocks[name], count) for name, count in further.items()),
            ],
        )
        for few_blocks, share in zip(shallow, _shares(planned, degrees, student_depth), strict=True)
    ]


def _shares(planned: Planned, degrees: Degrees, model_depth: Depth) -> list[int]:
    """The number of blocks on each rank of a pipeline."""
    if degrees.pp == 1:
        return [model_depth.blocks]
    ranks = homes(planned.train.pipeline, degrees.pp)
    shallow = layout_with(replace(planned, model=model_depth.cut(planned.model, FEW)), degrees)
    count = model_depth.blocks
    full = replace(shallow, blocks=shallow.blocks[:1] * count, costs=shallow.costs[:1] * count)
    shares = Counter[int]()
    for rank, part in zip(ranks, boundaries(full, len(ranks), planned.settings.train_path), strict=True):
        shares[rank] += len(part)
    return [shares[rank] for rank in range(degrees.pp)]


def _extrapolated(shallow: Traced, increments: Sequence[tuple[BlockIncrement, float]]) -> Traced:
    """A shallow model's trace, plus each increment times its number of further blocks."""

    def total(value: int, added: Iterable[int]) -> int:
        return round(value + sum(more * times for more, (_, times) in zip(added, increments, strict=True)))

    all_kinds = dict.fromkeys([*shallow.peak.kinds, *(kind for more, _ in increments for kind in more.kinds)])
    kinds: dict[Kind, int] = {
        kind: total(shallow.peak.kinds.get(kind, 0), (more.kinds[kind] for more, _ in increments)) for kind in all_kinds
    }
    ordered = dict(sorted(kinds.items(), key=lambda item: -item[1]))
    return Traced(
        peak=Peak(
            total(shallow.peak.bytes, (more.kinds.total() for more, _ in increments)), shallow.peak.phase, ordered
        ),
        resident=total(shallow.resident, (more.resident for more, _ in increments)),
        flops=total(shallow.flops, (more.flops for more, _ in increments)),
        traffic={
            collective: total(size, (more.traffic[collective] for more, _ in increments))
            for collective, size in shallow.traffic.items()
        },
        state=total(shallow.state, (more.state for more, _ in increments)),
    )
