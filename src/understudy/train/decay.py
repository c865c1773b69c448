"""Parameters without weight decay, where a recipe names them (optimizer.no_decay)."""

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

import torch.distributed as dist
from torch import nn

from understudy.errors import InputError
from understudy.parallel.apply import unwrapped

NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")


def exempt(model: nn.Module, objective: nn.Module, patterns: Sequence[str], path: str) -> set[int]:
    """The id() of each parameter that matches; a tied weight matches by any of its names.

    Collective: call it on every rank, since each may have only some layers.

    Args:
        model: this rank's part, under the names that it is saved with.
        objective: the objective; its parameters have the prefix `objective.`.
        patterns: shell patterns, in which * matches dots too.
        path: their path in the recipe.

    Raises:
        InputError: a pattern matches no parameter of the whole model.
    """
    parameters = _local_parameters(model, objective)
    names: list[list[str]] = [[] for _ in range(dist.get_world_size())]
    dist.all_gather_object(names, [name for name, _ in parameters])
    _refuse_unmatched(patterns, [name for part in names for name in part], path)
    return {id(parameter) for name, parameter in parameters if _matches(name, patterns)}


def check_patterns(model: nn.Module, objective: nn.Module, patterns: Sequence[str], path: str) -> None:
    """Check the patterns of exempt() against a whole model in one process.

    Raises:
        InputError: a pattern matches no parameter.
    """
    _refuse_unmatched(patterns, [name for name, _ in _local_parameters(model, objective)], path)


def _local_parameters(model: nn.Module, objective: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """This rank's parameters, by the names that patterns match."""
    parameters = [(name.removeprefix("net."), parameter) for name, parameter in _with_all_names(model)]
    return parameters + [(f"objective.{name}", parameter) for name, parameter in _with_all_names(objective)]


def _with_all_names(module: nn.Module) -> Iterable[tuple[str, nn.Parameter]]:
    """A module's parameters; tied ones come once for each of their names."""
    return unwrapped(module).named_parameters(remove_duplicate=False)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _refuse_unmatched(patterns: Sequence[str], names: Sequence[str], path: str) -> None:
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            names_by_layer = ", ".join(dict.fromkeys(NUMBER.sub("*", name) for name in names))
            raise InputError(f"{path}: {pattern} names no parameter; there are {names_by_layer}")
