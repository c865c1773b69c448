"""A model that is tried on an imagined example before it is traced, so that one which fails on it fails in words."""

import json

from understudy.models.build import undrawn_model
from understudy.models.facts import Description
from understudy.models.outputs import Extra
from understudy.parallel.apply import Spread
from understudy.parallel.savers import NONE
from understudy.plan.imagined import Imagined
from understudy.recipe import Train
from understudy.train.shapes import check_shapes

_tried: set[str] = set()
"""Models that can be run, on what, and how they are split."""


def try_model(
    description: Description,
    examples: Imagined,
    extras: frozenset[Extra],
    section: str,
    spread: Spread,
    train: Train | None,
) -> None:
    """Send one example through a model without memory, as a training does before it begins.

    Args:
        description: the model's.
        examples: of its data.
        extras: what the objectives need of it besides its logits.
        section: the recipe's, of it and of its training.
        spread: over which ranks.
        train: the training that splits its layers, where one does.

    Raises:
        InputError: the model fails, or its output has another shape.
    """
    split = train if spread.degrees.tp > 1 and spread.degrees.pp == 1 else None
    key = json.dumps([description, examples.facts, split and [split.tensor_plan]], sort_keys=True)
    if key in _tried:
        return
    where = f"{section}.model"
    model = undrawn_model(description, where)
    if split:
        model = spread.over_ranks(model, split.tensor_plan, f"{section}.train", NONE)
    check_shapes(model, examples, description, spread.device, where, extras)
    _tried.add(key)
