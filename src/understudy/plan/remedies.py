"""What degrees lack that do not fit, and the smallest change of the recipe that makes them fit."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from understudy.errors import InputError
from understudy.plan.estimate import Estimate
from understudy.plan.ranking import Place, estimated
from understudy.plan.trace import Planned
from understudy.recipe import Train

PARTS = (2, 4, 8)
"""Times as many micro-batches that are tried."""


@dataclass(frozen=True)
class Remedy:
    """A change of the recipe, and what the training takes then."""

    change: str
    estimate: Estimate


def remedy(planned: Planned, miss: Estimate, place: Place) -> Remedy | None:
    """The first change of the recipe with which degrees fit that do not; None where none is enough."""
    for change, train in _changes(planned.train, miss.degrees.readers):
        try:
            found = estimated(replace(planned, train=train), miss.degrees, place)
        except InputError:
            continue
        if found.fits:
            return Remedy(change, found)
    return None


def _changes(train: Train, readers: int) -> Iterator[tuple[str, Train]]:
    full = {"activation_checkpointing": "full"}
    if train.activation_checkpointing != "full":
        yield "activation_checkpointing: full", train.model_copy(update=full)
    for times in PARTS:
        count = times * train.gradient_accumulation_steps
        if train.batch_size % (count * readers) == 0:
            parts = {"gradient_accumulation_steps": count}
            yield f"gradient_accumulation_steps: {count}", train.model_copy(update=parts)
            if train.activation_checkpointing != "full":
                words = f"gradient_accumulation_steps: {count} and activation_checkpointing: full"
                yield words, train.model_copy(update=full | parts)


def lacking(planned: Planned, miss: Estimate, place: Place) -> str:
    """What degrees lack that do not fit, and what would make them fit, in words."""
    most = max(miss.traced.peak.kinds, key=lambda kind: miss.traced.peak.kinds[kind])
    words = (
        f"{miss.degrees} takes {miss.memory:.2f} GiB of {place.hardware.memory:.1f}, "
        f"{miss.memory - place.hardware.memory:.2f} too many, and most of them are {most}"
    )
    if found := remedy(planned, miss, place):
        return f"{words}; it fits with {found.change} ({found.estimate.memory:.2f} GiB)"
    return f"{words}; neither smaller parts of a batch nor computing blocks again is enough: take more processes"
