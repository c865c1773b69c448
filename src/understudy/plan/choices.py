"""Every set of degrees that a number of processes has, and why some of them make no sense for a training."""

from collections.abc import Iterator

from understudy.parallel.heads import HEADS
from understudy.plan.trace import Planned
from understudy.recipe import Degrees

AXES = ("pp", "dp_replicate", "dp_shard", "cp", "tp")


def all_degrees(world: int) -> list[Degrees]:
    """Those whose product is the number of processes."""
    return [Degrees.model_validate(dict(zip(AXES, factors, strict=True))) for factors in _factorings(world, len(AXES))]


def _factorings(number: int, count: int) -> Iterator[tuple[int, ...]]:
    if count == 1:
        yield (number,)
        return
    for first in range(1, number + 1):
        if number % first == 0:
            yield from ((first, *rest) for rest in _factorings(number // first, count - 1))


def refusal(planned: Planned, found: Degrees, per_node: int) -> str | None:
    """Why degrees are not for this training, as far as its sizes say; None if they may be."""
    train, config = planned.train, planned.model.get("config")
    parts = found.readers * train.gradient_accumulation_steps
    if train.batch_size % parts:
        return f"batch_size {train.batch_size} does not divide into {parts} parts"
    if found.pp > train.gradient_accumulation_steps:
        return f"fewer micro-batches than stages ({train.gradient_accumulation_steps} for {found.pp})"
    if found.tp > per_node:
        return "layers would be split over nodes"
    if found.cp > 1:
        facts = planned.examples.facts
        if facts["task"] != "causal-lm":
            return "there are no sequences to split"
        if facts["sequence_length"] % found.cp:
            return f"sequences of {facts['sequence_length']} do not divide into {found.cp} parts"
    heads = [config[name] for name in HEADS if name in config] if isinstance(config, dict) else []
    if any(count % (found.tp * found.cp) for count in heads):
        return f"heads ({', '.join(map(str, heads))}) do not divide over tp x cp = {found.tp * found.cp}"
    return None
