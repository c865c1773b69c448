"""All sets of degrees for a number of processes, and the reasons why some make no sense for a training."""

from collections.abc import Iterator

from understudy.models.facts import keeps_apart, predicts_tokens
from understudy.parallel.heads import HEADS
from understudy.plan.planned import Planned
from understudy.recipe import AXES, Degrees
from understudy.recipe.training_rules import degree_conflicts


def all_degrees(world: int) -> list[Degrees]:
    """All sets of degrees whose product is the number of processes."""
    return [Degrees.model_validate(dict(zip(AXES, factors, strict=True))) for factors in _factorings(world, len(AXES))]


def _factorings(number: int, count: int) -> Iterator[tuple[int, ...]]:
    if count == 1:
        yield (number,)
        return
    for first in range(1, number + 1):
        if number % first == 0:
            yield from ((first, *further) for further in _factorings(number // first, count - 1))


def refusal(planned: Planned, degrees: Degrees, per_node: int) -> str | None:
    """The reason why degrees do not suit a training's sizes; None if they may."""
    train = planned.train
    parts = degrees.readers * train.gradient_accumulation_steps
    if train.batch_size % parts:
        return f"batch_size {train.batch_size} does not divide into {parts} parts"
    if degrees.pp > train.gradient_accumulation_steps:
        return f"fewer micro-batches than stages ({train.gradient_accumulation_steps} for {degrees.pp})"
    for path, reason in degree_conflicts((), train, degrees):
        return f"{'.'.join(map(str, path))}: {reason}"
    if conflict := _of_objectives(planned, degrees):
        return conflict
    if degrees.tp > per_node:
        return "layers would be split over nodes"
    if conflict := _of_sequences(planned, degrees) or _of_the_teacher(planned, degrees):
        return conflict
    heads = _heads(planned)
    if any(count % degrees.head_parts for count in heads):
        axes = "tp" if degrees.cp_comm_type == "ring" else "tp x cp"
        return f"heads ({', '.join(map(str, heads))}) do not divide over {axes} = {degrees.head_parts}"
    return None


def _of_objectives(planned: Planned, degrees: Degrees) -> str | None:
    train, packed = planned.train, keeps_apart(planned.examples.facts)
    size, parts = train.batch_size, train.gradient_accumulation_steps
    for objective in planned.settings.objectives:
        for reason in objective.requirements.conflicts(
            degrees, packed=packed, mixed=train.mixed, batch_size=size, parts=parts
        ):
            return f"student.distill.{objective.type}: {reason}"
    return None


def _of_sequences(planned: Planned, degrees: Degrees) -> str | None:
    facts = planned.examples.facts
    if degrees.cp == 1:
        return None
    if not predicts_tokens(facts):
        return "there are no sequences to split"
    if facts["sequence_length"] % degrees.sequence_parts:
        return f"sequences of {facts['sequence_length']} do not divide into {degrees.sequence_parts} parts"
    if keeps_apart(facts) and degrees.cp_comm_type == "ring":
        return "a ring does not separate documents"
    return None


def _of_the_teacher(planned: Planned, degrees: Degrees) -> str | None:
    try:
        degrees.of_teacher(planned.settings.teacher_shards)
    except ValueError as error:
        return f"teacher_shards: {error}"
    return None


def suited(planned: Planned, degrees: Degrees) -> Degrees:
    """The degrees, with a ring of keys and values where heads do not divide; an exchange of heads sends less."""
    ring = degrees.model_copy(update={"cp_comm_type": "ring"}) if degrees.cp > 1 else degrees
    exchanges = not any(count % degrees.head_parts for count in _heads(planned))
    return degrees if exchanges or refusal(planned, ring, degrees.tp) else ring


def _heads(planned: Planned) -> list[int]:
    config = planned.model.get("config")
    return [config[name] for name in HEADS if name in config] if isinstance(config, dict) else []
