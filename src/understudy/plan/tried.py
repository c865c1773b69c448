"""A model that is tried on an imagined example before it is traced, so that one which fails on it fails in words."""

import json

from understudy.distill.objectives import Objective
from understudy.models.build import undrawn_model
from understudy.models.facts import Description
from understudy.parallel.apply import Spread
from understudy.parallel.savers import NONE
from understudy.plan.imagined import Imagined
from understudy.recipe import Train
from understudy.train.naming import check_names
from understudy.train.shapes import check_shapes

_tried: set[str] = set()
"""Models that can be run, on what, and how they are split."""


def try_model(
    description: Description,
    examples: Imagined,
    learned: Objective,
    section: str,
    spread: Spread,
    train: Train | None,
) -> None:
    """Send one example through a model without memory, as a training does before it begins.

    Args:
        description: the model's.
        examples: of its data.
        learned: the objective, which may need more of it than its logits.
        section: the recipe's, of it and of its training.
        spread: over which ranks.
        train: its training, where it has one.

    Raises:
        InputError: the model fails, its output has another shape, or its training names what it has not.
    """
    split = train if spread.degrees.tp > 1 and spread.degrees.pp == 1 else None
    named = train and (train.optimizer.no_decay, train.lora and train.lora.model_dump())
    key = json.dumps([description, examples.facts, split and [split.tensor_plan], named], sort_keys=True)
    if key in _tried:
        return
    where = f"{section}.model"
    model = undrawn_model(description, where)
    if split:
        model = spread.over_ranks(model, split.tensor_plan, f"{section}.train", NONE)
    check_shapes(model, examples, description, spread.device, where, learned.extras)
    if train:
        check_names(model, learned, train, f"{section}.train")
    _tried.add(key)
