"""Names in a training's settings, looked up in the model before any training."""

from torch import nn

from understudy.models.adapters import add_adapters
from understudy.recipe import Train
from understudy.train.decay import check_patterns


def check_names(model: nn.Module, learns: nn.Module, train: Train, where: str) -> None:
    """Check that the layers for adapters, and the parameters without decay, exist.

    Args:
        model: whole, with memory or without; do not use it afterwards: adapters are added to it.
        learns: the objective.
        train: the recipe's settings.
        where: their path in the recipe.

    Raises:
        InputError: a name matches nothing in the model.
    """
    if train.lora:
        add_adapters(model, train.lora, where)
    if (patterns := train.optimizer.no_decay) is not None:
        check_patterns(model, learns, patterns, f"{where}.optimizer.no_decay")
