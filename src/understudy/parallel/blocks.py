"""The repeated blocks of a model: the units of sharding and recomputation."""

from torch import nn

from understudy.errors import InputError


def blocks(model: nn.Module) -> list[nn.Module]:
    """The model's repeated blocks: the children of its largest ModuleList, or an empty list."""
    lists: list[nn.Module] = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    return list(max(lists, key=_weight).children()) if lists else []


def needed_blocks(model: nn.Module, setting: str, otherwise: str) -> list[nn.Module]:
    """The blocks that a setting applies to.

    Args:
        model: the model.
        setting: its path in the recipe, for the error.
        otherwise: the fix for a model without blocks, for the error.

    Raises:
        InputError: the model has no blocks.
    """
    if model_blocks := blocks(model):
        return model_blocks
    raise InputError(f"{setting}: the model has no repeated blocks (an nn.ModuleList); {otherwise}")


def _weight(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
