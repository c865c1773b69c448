"""The repeated blocks of a model: what is sharded, and computed again, one at a time."""

from torch import nn

from understudy.errors import InputError


def blocks(model: nn.Module) -> list[nn.Module]:
    """The model's repeated blocks: the children of its largest ModuleList; none when it has no such list."""
    lists: list[nn.Module] = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    return list(max(lists, key=_weight).children()) if lists else []


def needed_blocks(model: nn.Module, setting: str, otherwise: str) -> list[nn.Module]:
    """The blocks that a setting is about.

    Args:
        model: may have none.
        setting: its place in the recipe, for the error.
        otherwise: what to do without blocks, for the error.

    Raises:
        InputError: the model has none.
    """
    if found := blocks(model):
        return found
    raise InputError(f"{setting}: the model has no repeated blocks (an nn.ModuleList); {otherwise}")


def _weight(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
