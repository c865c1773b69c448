"""The models of an evaluation on a rank: whole, or its shards of them, from whose blocks one at a time is gathered."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import nn

from understudy.models.build import empty_model, is_empty
from understudy.models.facts import Description
from understudy.models.files import check_files, load_model, read_weights
from understudy.parallel.apply import Spread, reshard


def load_models(
    folders: Mapping[str, Path], descriptions: Mapping[str, Description], device: torch.device, spread: Spread | None
) -> dict[str, nn.Module]:
    """Saved models in evaluation mode, fp32, by role. To be called on every rank.

    Args:
        folders: the saved models'.
        descriptions: what they are, from whom the caller trusts.
        device: this rank's.
        spread: how they are in shards over the ranks; None for whole ones.

    Raises:
        InputError: a factory model's code cannot be imported.
        UnderstudyError: a folder's files are not those of such a model.
    """
    if spread is None:
        return {role: load_model(folder, descriptions[role], device) for role, folder in folders.items()}
    return {role: _in_shards(folder, descriptions[role], spread) for role, folder in folders.items()}


def _in_shards(folder: Path, description: Description, spread: Spread) -> nn.Module:
    """A model of which this rank reads and keeps its shards. Each of its calls takes all ranks."""
    check_files(folder, description)
    model = empty_model(description, where=str(folder))
    if not is_empty(model):  # code that is not transformers' own was built whole
        model.to(spread.device)
    model = spread.sharded(model)
    read_weights(model, folder, spread.device)
    # What is in no block would stay gathered, of all models at once, and be there already when they are timed.
    model.register_forward_hook(lambda *_: reshard(model))
    return model.eval()
