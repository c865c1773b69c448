"""A trial of a model on a placeholder example before it is traced, so that a failure has a readable error."""

import json

from torch import nn

from understudy.models.build import uninitialized_model
from understudy.models.facts import Description
from understudy.models.outputs import OutputShapes
from understudy.parallel.apply import Spread
from understudy.parallel.savers import NONE
from understudy.plan.placeholders import PlaceholderExamples
from understudy.recipe import Train
from understudy.recipe.objectives import Extra
from understudy.train.naming import check_names
from understudy.train.shapes import check_shapes

_shapes: dict[str, OutputShapes] = {}
"""Shapes of models that passed, by their description, examples, extras and tensor plan, as JSON."""
_checked_names: set[str] = set()
"""Trainings whose names passed: description, named parameters, and the objective's, as JSON."""


def try_model(
    description: Description,
    examples: PlaceholderExamples,
    extras: frozenset[Extra],
    section: str,
    spread: Spread,
    train: Train | None,
) -> OutputShapes:
    """Run a model without memory on one example, as a training does before it begins.

    Args:
        description: of the model.
        examples: its placeholder data.
        extras: outputs besides logits that the objectives need.
        section: the recipe's section of the model and its training.
        spread: over ranks.
        train: its training, if it has one.

    Returns:
        The shapes of the extras.

    Raises:
        InputError: the model fails, or its output has a wrong shape.
    """
    split = train if spread.degrees.tp > 1 and spread.degrees.pp == 1 else None
    key = json.dumps([description, examples.facts, sorted(extras), split and [split.tensor_plan]], sort_keys=True)
    if key not in _shapes:
        path = f"{section}.model"
        model = uninitialized_model(description, path)
        if split:
            model = spread.over_ranks(model, split.tensor_plan, f"{section}.train", NONE)
        _shapes[key] = check_shapes(model, examples, description, spread.device, path, extras)
    return _shapes[key]


def try_names(description: Description, wrapped_objective: nn.Module, train: Train, section: str) -> None:
    """Look up the names in a training's settings.

    Args:
        description: of the trained model.
        wrapped_objective: its objective.
        train: the settings.
        section: the recipe's section of the model and its training.

    Raises:
        InputError: the training names parts that the model lacks.
    """
    names = train.optimizer.no_decay, train.lora and train.lora.model_dump()
    parameters = [name for name, _ in wrapped_objective.named_parameters()]
    key = json.dumps([description, names, parameters], sort_keys=True)
    if key not in _checked_names and any(names):
        check_names(uninitialized_model(description, f"{section}.model"), wrapped_objective, train, f"{section}.train")
        _checked_names.add(key)
