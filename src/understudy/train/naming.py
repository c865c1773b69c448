"""The check of the names in a training's settings against its model, before any training.

A training applies the same functions to its own model, on every rank. This check finds a wrong name hours earlier: in
the step of a pretrained student (steps/naming.py), in the job of a teacher for the student, and in a plan.
"""

from torch import nn

from understudy.models.adapters import add_adapters
from understudy.recipe import Train
from understudy.train.decay import check_patterns


def check_names(model: nn.Module, objective: nn.Module | None, train: Train, path: str) -> None:
    """Check that the layers for adapters, and the parameters without decay, exist.

    Args:
        model: whole, with memory or without; do not use it afterwards: adapters are added to it.
        objective: the training's; None if its parameters are not known yet, so that names of parameters cannot be
            checked.
        train: the recipe's settings.
        path: their path in the recipe.

    Raises:
        InputError: a name matches nothing in the model.
    """
    if train.lora:
        add_adapters(model, train.lora, path)
    patterns = train.optimizer.no_decay
    if patterns is not None and objective is not None:
        check_patterns(model, objective, patterns, f"{path}.optimizer.no_decay")
