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
from understudy.plan.ledger import Kind, Peak
from understudy.plan.repeated import Further
from understudy.plan.trace import Planned, Traced, laid_out, traces
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
    teachers = {name: depth(teacher, section_of(name)) for name, teacher in planned.teachers.items()}
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
    cut = {name: found.cut(planned.teachers[name], FEW) for name, found in teacher_depths.items() if found}
    teachers = {**planned.teachers, **cut}
    shallow = traces(replace(planned, model=model, teachers=teachers), degrees, device, precision, even=True)
    above = {name: found.blocks - FEW for name, found in teacher_depths.items() if found}
    return [
        _on_line(
            start,
            [
                (start.student_block, share / per_rank - FEW),
                *((start.teacher_blocks[name], count) for name, count in above.items()),
            ],
        )
        for start, share in zip(shallow, _shares(planned, degrees, student_depth), strict=True)
    ]


def _shares(planned: Planned, degrees: Degrees, model_depth: Depth) -> list[int]:
    """The number of blocks on each rank of a pipeline."""
    if degrees.pp == 1:
        return [model_depth.blocks]
    ranks = homes(planned.train.pipeline, degrees.pp)
    models = laid_out(replace(planned, model=model_depth.cut(planned.model, FEW)), degrees)
    whole = replace(models, blocks=models.blocks[:1] * model_depth.blocks, costs=models.costs[:1] * model_depth.blocks)
    shares = Counter[int]()
    for rank, part in zip(ranks, boundaries(whole, len(ranks), planned.settings.train_path), strict=True):
        shares[rank] += len(part)
    return [shares[rank] for rank in range(degrees.pp)]


def _on_line(start: Traced, further: Sequence[tuple[Further, float]]) -> Traced:
    """The trace `start`, plus each increment times its number of further blocks."""

    def number(first: int, added: Iterable[int]) -> int:
        return round(first + sum(more * times for more, (_, times) in zip(added, further, strict=True)))

    every = dict.fromkeys([*start.peak.kinds, *(kind for more, _ in further for kind in more.kinds)])
    kinds: dict[Kind, int] = {
        kind: number(start.peak.kinds.get(kind, 0), (more.kinds[kind] for more, _ in further)) for kind in every
    }
    ordered = dict(sorted(kinds.items(), key=lambda item: -item[1]))
    return Traced(
        peak=Peak(number(start.peak.bytes, (more.kinds.total() for more, _ in further)), start.peak.phase, ordered),
        resident=number(start.resident, (more.resident for more, _ in further)),
        flops=number(start.flops, (more.flops for more, _ in further)),
        traffic={
            which: number(size, (more.traffic[which] for more, _ in further)) for which, size in start.traffic.items()
        },
        state=number(start.state, (more.state for more, _ in further)),
    )
