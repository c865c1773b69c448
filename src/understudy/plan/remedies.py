"""The nearest miss: of degrees that do not fit, those that lack least, and what would make them fit."""

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


def remedies(planned: Planned, miss: Estimate, place: Place) -> Iterator[Remedy]:
    """Changes of the recipe that make degrees fit which do not, each of them alone and then together."""
    for change, train in _changes(planned.train, miss.degrees.readers):
        try:
            found = estimated(replace(planned, train=train), miss.degrees, place)
        except InputError:
            continue
        if found.fits:
            yield Remedy(change, found)
            return


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


def nearest_miss(planned: Planned, miss: Estimate, place: Place) -> str:
    """What degrees lack that lack least, in words."""
    lacks = miss.memory - place.hardware.memory
    most = max(miss.traced.peak.kinds, key=lambda kind: miss.traced.peak.kinds[kind])
    words = (
        f"{miss.degrees} comes nearest: {miss.memory:.2f} GiB of {place.hardware.memory:.1f}, {lacks:.2f} too "
        f"many, and most of them are {most}"
    )
    remedy = next(remedies(planned, miss, place), None)
    if remedy:
        return f"{words}; it fits with {remedy.change} ({remedy.estimate.memory:.2f} GiB)"
    return f"{words}; neither smaller parts of a batch nor computing blocks again is enough: take more processes"
