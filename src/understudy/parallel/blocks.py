"""The repeated blocks of a model: what is sharded, and computed again, one at a time."""

from torch import nn


def blocks(model: nn.Module) -> list[nn.Module]:
    """The model's repeated blocks: the children of its largest ModuleList; none when it has no such list."""
    lists: list[nn.Module] = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    return list(max(lists, key=_weight).children()) if lists else []


def _weight(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
