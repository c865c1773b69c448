"""Layers of one model for those of another of a different depth, counted from 1."""

from collections.abc import Sequence
from typing import Literal

from understudy.errors import InputError


def uniform_layers(own: int, others: int) -> tuple[int, ...]:
    """For each layer of a model, that of another at the same share of the depth.

    Args:
        own: the number of the model's layers.
        others: the number of the other's.
    """
    return tuple(-(-layer * others // own) for layer in range(1, own + 1))


def chosen_layers(
    layers: Literal["uniform", "last"] | Sequence[int], own: int, others: int, where: str, teacher: str
) -> tuple[int, ...]:
    """For each layer of a model, the teacher's that gives its first weights.

    Args:
        layers: the recipe's choice.
        own: the number of the model's layers.
        others: the number of the teacher's; at least one.
        where: the path of the choice in the recipe, for errors.
        teacher: the teacher's name, for errors.

    Raises:
        InputError: the teacher does not have these layers, or there is not one for each of the model's.
    """
    if layers == "uniform":
        return uniform_layers(own, others)
    if layers == "last":
        if own > others:
            why = f"the model has {own} layers, and {teacher} {others}"
            raise InputError(f"{where}: {why}; use uniform, or name a layer of {teacher} for each")
        return tuple(range(others - own + 1, others + 1))
    for layer in layers:
        assert isinstance(layer, int)
        if layer > others:
            raise InputError(f"{where}: there is no layer {layer} in {teacher}, which has {others}; name 1 to {others}")
    if len(layers) != own:
        why = f"names {len(layers)} layers, and the model has {own}"
        raise InputError(f"{where}: {why}; name a layer of {teacher} for each")
    return tuple(layers)
