"""The number of steps of a training that counts epochs, estimated from its data before ingestion."""

from understudy.data.raw import Broken
from understudy.data.sources.registry import read
from understudy.errors import InputError
from understudy.recipe import Recipe, Train
from understudy.recipe.tasks import load

ENOUGH = 2**28
"""Bytes of records that are sampled; the others are assumed to be alike."""
TOKEN = 3
"""Approximate bytes per token, for any text and vocabulary."""


def training_examples(recipe: Recipe) -> int | None:
    """The approximate number of training examples; None if the data is not here.

    A share of the records that the recipe sets aside is assumed to be the same share of bytes.
    """
    try:
        reading = read(recipe.data.source, load(recipe.task).FIELDS)
        count, trained, length, splits = 0, 0, 0, set[str | None]()
        for record in reading.records:
            count += 1
            if isinstance(record, Broken):
                continue
            splits.add(record.split)
            if record.split in (None, "train"):
                trained += 1
                length += len(record.content) + sum(map(len, record.others.values()))
            if length > ENOUGH:
                break
    except InputError:
        return None
    shares = {"test": recipe.data.test, "validation": recipe.data.validation}
    fraction = 1 - sum(share for split, share in shares.items() if split not in splits)
    fraction *= reading.total / count if count else 0.0
    if not recipe.packed and not recipe.takes("data.text.packing"):  # a record is an example
        return round(fraction * trained)
    return round(fraction * length / TOKEN / recipe.text.sequence_length)


def steps_of(train: Train, examples: int | None) -> int | None:
    """The number of steps of a training on about so many examples; None if it depends on missing data."""
    if train.steps is not None or examples is None:
        return train.steps
    assert train.epochs is not None
    return train.epochs * max(1, -(-examples // train.batch_size))
