"""What a training names of its model, looked for before anything is trained."""

from torch import nn

from understudy.models.adapters import add_adapters
from understudy.recipe import Train
from understudy.train.decay import check_patterns


def check_names(model: nn.Module, learns: nn.Module, train: Train, where: str) -> None:
    """Whether there are the layers that get adapters, and the parameters that do not decay.

    Args:
        model: whole, and not used afterwards: it is given its adapters; its tensors may be without memory.
        learns: the objective.
        train: the recipe's settings.
        where: their place in the recipe.

    Raises:
        InputError: a name is that of nothing in the model.
    """
    if train.lora:
        add_adapters(model, train.lora, where)
    if (patterns := train.optimizer.no_decay) is not None:
        check_patterns(model, learns, patterns, f"{where}.optimizer.no_decay")
