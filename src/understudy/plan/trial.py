"""A trial of a model on a placeholder example before it is traced, so that a failure has a readable error."""

import json

from understudy.models.build import undrawn_model
from understudy.models.facts import Description
from understudy.objectives.objective import Objective
from understudy.parallel.apply import Spread
from understudy.parallel.savers import NONE
from understudy.plan.placeholders import PlaceholderExamples
from understudy.recipe import Train
from understudy.train.naming import check_names
from understudy.train.shapes import check_shapes

_tried: set[str] = set()
"""Models that passed, with their examples, tensor plan and named parameters, as JSON."""


def try_model(
    description: Description,
    examples: PlaceholderExamples,
    learned: Objective,
    section: str,
    spread: Spread,
    train: Train | None,
) -> None:
    """Run a model without memory on one example, as a training does before it begins.

    Args:
        description: of the model.
        examples: its placeholder data.
        learned: the objective, which may need other outputs beside logits.
        section: the recipe's section of the model and its training.
        spread: over ranks.
        train: its training, if it has one.

    Raises:
        InputError: the model fails, its output has a wrong shape, or its training names parts that it lacks.
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
