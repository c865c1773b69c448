"""Parameters without weight decay, where a recipe names them (optimizer.no_decay)."""

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

import torch.distributed as dist
from torch import nn

from understudy.errors import InputError
from understudy.parallel.apply import unwrapped

NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")


def exempt(model: nn.Module, learns: nn.Module, patterns: Sequence[str], where: str) -> set[int]:
    """The id() of each parameter that matches; a tied weight matches by any of its names.

    Collective: call it on every rank, since each may have only some layers.

    Args:
        model: this rank's part, under the names that it is saved with.
        learns: the objective; its parameters have the prefix `objective.`.
        patterns: shell patterns, in which * matches dots too.
        where: their path in the recipe.

    Raises:
        InputError: a pattern matches no parameter of the whole model.
    """
    own = _own(model, learns)
    names: list[list[str]] = [[] for _ in range(dist.get_world_size())]
    dist.all_gather_object(names, [name for name, _ in own])
    _refuse_unmatched(patterns, [name for held in names for name in held], where)
    return {id(parameter) for name, parameter in own if _matches(name, patterns)}


def check_patterns(model: nn.Module, learns: nn.Module, patterns: Sequence[str], where: str) -> None:
    """Check the patterns of exempt() against a whole model in one process.

    Raises:
        InputError: a pattern matches no parameter.
    """
    _refuse_unmatched(patterns, [name for name, _ in _own(model, learns)], where)


def _own(model: nn.Module, learns: nn.Module) -> list[tuple[str, nn.Parameter]]:
    own = [(name.removeprefix("net."), parameter) for name, parameter in _named(model)]
    return own + [(f"objective.{name}", parameter) for name, parameter in _named(learns)]


def _named(module: nn.Module) -> Iterable[tuple[str, nn.Parameter]]:
    return unwrapped(module).named_parameters(remove_duplicate=False)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _refuse_unmatched(patterns: Sequence[str], names: Sequence[str], where: str) -> None:
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            known = ", ".join(dict.fromkeys(NUMBER.sub("*", name) for name in names))
            raise InputError(f"{where}: {pattern} names no parameter; there are {known}")
