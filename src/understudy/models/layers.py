"""Layers of one model for those of another of a different depth, counted from 1."""

from collections.abc import Sequence
from typing import Literal

from understudy.errors import InputError


def uniform_layers(n_layers: int, n_teacher_layers: int) -> tuple[int, ...]:
    """For each layer of a model, that of another at the same share of the depth.

    Args:
        n_layers: the number of the model's layers.
        n_teacher_layers: the number of the other model's.
    """
    return tuple(-(-layer * n_teacher_layers // n_layers) for layer in range(1, n_layers + 1))


def chosen_layers(
    layers: Literal["uniform", "last"] | Sequence[int], n_layers: int, n_teacher_layers: int, setting: str, teacher: str
) -> tuple[int, ...]:
    """For each layer of a model, the teacher's that gives its first weights.

    Args:
        layers: the recipe's choice.
        n_layers: the number of the model's layers.
        n_teacher_layers: the number of the teacher's; at least one.
        setting: the path of the choice in the recipe, for errors.
        teacher: the teacher's name, for errors.

    Raises:
        InputError: the teacher does not have these layers, or there is not one for each of the model's.
    """
    if layers == "uniform":
        return uniform_layers(n_layers, n_teacher_layers)
    if layers == "last":
        if n_layers > n_teacher_layers:
            why = f"the model has {n_layers} layers, and {teacher} {n_teacher_layers}"
            raise InputError(f"{setting}: {why}; use uniform, or name a layer of {teacher} for each")
        return tuple(range(n_teacher_layers - n_layers + 1, n_teacher_layers + 1))
    for layer in layers:
        assert isinstance(layer, int)
        if layer > n_teacher_layers:
            why = f"there is no layer {layer} in {teacher}, which has {n_teacher_layers}"
            raise InputError(f"{setting}: {why}; name 1 to {n_teacher_layers}")
    if len(layers) != n_layers:
        why = f"names {len(layers)} layers, and the model has {n_layers}"
        raise InputError(f"{setting}: {why}; name a layer of {teacher} for each")
    return tuple(layers)
