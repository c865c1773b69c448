"""The models of an evaluation on a rank: whole, or sharded with one block all-gathered at a time."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import nn

from understudy.errors import InputError
from understudy.models.build import empty_model, is_empty
from understudy.models.facts import Description
from understudy.models.files import check_files, load_model, read_weights
from understudy.models.narrow import narrowed
from understudy.parallel.apply import Spread, reshard
from understudy.recipe import EvaluatePrecision

KINDS = {"fp32": torch.float32, "bf16": torch.bfloat16}


def kind_of(precision: EvaluatePrecision, device: torch.device) -> torch.dtype:
    """The dtype of a recipe's evaluate.precision.

    Raises:
        InputError: the GPU does not compute in it.
    """
    if precision == "bf16" and device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        raise InputError(f"evaluate.precision: {torch.cuda.get_device_name(device)} does not compute in bf16; use fp32")
    return KINDS[precision]


def load_models(
    folders: Mapping[str, Path],
    descriptions: Mapping[str, Description],
    device: torch.device,
    spread: Spread | None,
    kind: torch.dtype = torch.float32,
) -> dict[str, nn.Module]:
    """Load saved models in evaluation mode, by role. Must be called on every rank.

    Args:
        folders: the saved models' folders.
        descriptions: the models' descriptions, from a source that the caller trusts.
        device: this rank's.
        spread: how the models are sharded over the ranks; None for whole models.
        kind: the dtype that they compute in.

    Raises:
        InputError: a factory model's code cannot be imported.
        UnderstudyError: a folder's files do not match its description.
    """
    if spread is None:
        models = {role: load_model(folder, descriptions[role], device) for role, folder in folders.items()}
        return {role: narrowed(model, kind) for role, model in models.items()}
    return {role: _in_shards(folder, descriptions[role], spread, kind) for role, folder in folders.items()}


def _in_shards(folder: Path, description: Description, spread: Spread, kind: torch.dtype) -> nn.Module:
    """A sharded model, of which this rank reads and keeps its shards. Each call involves all ranks."""
    check_files(folder, description)
    model = empty_model(description, section=str(folder))
    if not is_empty(model):  # code from outside transformers was built whole
        model.to(spread.device)
    # The files have the dtypes of the model before it was narrowed.
    saved = None if kind is torch.float32 else empty_model(description, section=str(folder))
    model = spread.sharded(narrowed(model, kind))
    read_weights(model, folder, spread.device, full_model=saved)
    # Parameters outside the blocks would stay all-gathered, for all models together, and already be so during timing.
    model.register_forward_hook(lambda *_: reshard(model))
    return model.eval()
