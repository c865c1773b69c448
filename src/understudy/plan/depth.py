"""What a deep model takes, from shallow ones: each further block adds what one more of few has added.

A language model's blocks are alike, and its trace is mostly the same block again and again. Memory at the peak, work
and traffic grow on a line with their number, from the first few blocks on.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from understudy.models.build import tried_model
from understudy.models.facts import Description
from understudy.parallel.blocks import blocks
from understudy.parallel.layout import boundaries
from understudy.parallel.pipeline import homes
from understudy.plan.ledger import Kind, Peak
from understudy.plan.repeated import Further
from understudy.plan.trace import Planned, Traced, laid_out, traces
from understudy.recipe import Degrees, Lora

FEW = 4
"""Blocks of the smaller model that is traced, of each of its stages, and of its teacher. At two, a block that is
gathered beforehand and one that is let go are the same ones, and the next adds more than further ones."""


@dataclass(frozen=True)
class Depth:
    """How many blocks a model has, all alike, and where its configuration says so."""

    blocks: int
    setting: str

    def cut(self, description: Description, count: int) -> Description:
        """The same model with so many of them."""
        assert description["kind"] == "transformers"
        config = dict(description["config"])
        for name, value in config.items():
            if isinstance(value, list) and len(value) == self.blocks:
                config[name] = value[:count]
        changed: Any = {**description, "config": {**config, self.setting: count}}
        return changed  # type: ignore[no-any-return]


def depth(description: Description, where: str) -> Depth | None:
    """A model's depth; None where its blocks are not all alike, or code of one's own makes them."""
    if description["kind"] != "transformers" or description.get("code"):
        return None
    from transformers import AutoConfig

    config = description["config"]
    made = AutoConfig.for_model(**config)
    setting = made.attribute_map.get("num_hidden_layers", "num_hidden_layers")
    count = getattr(made, setting, None)
    with tried_model(description, where) as model:
        found = blocks(model)
    shapes = {tuple((name, weight.shape) for name, weight in block.named_parameters()) for block in found}
    each = [value for value in config.values() if isinstance(value, list) and len(value) == count]
    if count != len(found) or len(shapes) != 1 or any(value != value[:1] * len(value) for value in each):
        return None
    return Depth(count, setting)


Depths = tuple[Depth | None, Depth | None]
"""Of a model and of its teacher."""


def depths(planned: Planned) -> Depths:
    """Of the models of a training."""
    teacher = depth(planned.teacher, "teacher.model") if planned.teacher else None
    return depth(planned.model, planned.where) if _trains_alike(planned.train.lora) else None, teacher


def _trains_alike(lora: Lora | None) -> bool:
    """Whether what is trained of each block is the same: no pattern may be of some blocks' numbers."""
    return lora is None or not re.search(r"[\d\[?]", " ".join((*lora.modules, *lora.whole)))


def deep_traces(planned: Planned, found: Degrees, known: Depths, device: str, precision: torch.dtype) -> list[Traced]:
    """As traces(), in a fraction of the time where blocks are alike.

    Args:
        planned: the training.
        found: its degrees.
        known: the depths of the training's models.
        device: whose allocator counts, cpu or cuda.
        precision: of matrix products.

    Raises:
        InputError: the model cannot be spread like this.
    """
    own, taught = known
    per_rank = planned.train.pipeline.stages_per_rank if found.pp > 1 else 1
    stages = found.pp * per_rank
    if own is None or own.blocks <= FEW * stages:
        return traces(planned, found, device, precision)

    model = own.cut(planned.model, FEW * stages)
    asked = taught.cut(planned.teacher, FEW) if planned.teacher and taught else planned.teacher
    shallow = traces(replace(planned, model=model, teacher=asked), found, device, precision, even=True)
    above = taught.blocks - FEW if taught else 0
    return [
        _on_line(start, [(start.own, share / per_rank - FEW), (start.taught, above)])
        for start, share in zip(shallow, _shares(planned, found, own), strict=True)
    ]


def _shares(planned: Planned, found: Degrees, own: Depth) -> list[int]:
    """How many blocks each rank of a pipeline has."""
    if found.pp == 1:
        return [own.blocks]
    ranks = homes(planned.train.pipeline, found.pp)
    seen = laid_out(replace(planned, model=own.cut(planned.model, FEW)), found)
    whole = replace(seen, blocks=seen.blocks[:1] * own.blocks, costs=seen.costs[:1] * own.blocks)
    shares = Counter[int]()
    for rank, part in zip(ranks, boundaries(whole, len(ranks), planned.where), strict=True):
        shares[rank] += len(part)
    return [shares[rank] for rank in range(found.pp)]


def _on_line(start: Traced, further: Sequence[tuple[Further, float]]) -> Traced:
    """What is at `start`, and so many times what each further block adds."""

    def number(first: int, added: Iterable[int]) -> int:
        return round(first + sum(more * times for more, (_, times) in zip(added, further, strict=True)))

    every = dict.fromkeys([*start.peak.kinds, *(kind for more, _ in further for kind in more.kinds)])
    kinds: dict[Kind, int] = {
        kind: number(start.peak.kinds.get(kind, 0), (more.kinds[kind] for more, _ in further)) for kind in every
    }
    ordered = dict(sorted(kinds.items(), key=lambda held: -held[1]))
    return Traced(
        peak=Peak(number(start.peak.bytes, (more.kinds.total() for more, _ in further)), start.peak.phase, ordered),
        kept=number(start.kept, (more.kept for more, _ in further)),
        flops=number(start.flops, (more.flops for more, _ in further)),
        traffic={
            which: number(size, (more.traffic[which] for more, _ in further)) for which, size in start.traffic.items()
        },
        state=number(start.state, (more.state for more, _ in further)),
    )
