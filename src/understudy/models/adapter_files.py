"""Adapters kept apart: two files in peft's format, beside the model that they are merged into.

They are for whoever has the model that they began with, and serves several adapters on it. They do not have the names
that peft looks for: transformers, where peft is installed, would add them to a model that has them already.
"""

import json
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import nn

from understudy.models.adapter_config import adapter_config
from understudy.models.adapters import adapters, turned
from understudy.models.facts import ADAPTERS, ADAPTERS_CONFIG, Facts
from understudy.models.parts import whole
from understudy.recipe import Lora, Model


def save_adapters(
    folder: Path, model: nn.Module, settings: Lora, began: Model, facts: Facts, stages: dist.ProcessGroup
) -> None:
    """Write a model's adapters. To be called on every rank.

    Args:
        folder: an existing folder.
        model: with adapters, as this rank holds it.
        settings: the recipe's.
        began: what the recipe says of the model that they began with.
        facts: of what that is for.
        stages: the ranks with other layers.
    """
    layers, state = dict[str, bool](), dict[str, Any]()
    for name, layer, adapter in adapters(model):
        plain = name.removeprefix("net.")
        layers[plain] = turned(layer)
        for factor, weight in (("lora_A", adapter.a), ("lora_B", adapter.b)):
            state[f"base_model.model.{plain}.{factor}.weight"] = whole(weight.detach()).cpu().contiguous()
    every: list[Any] = [(layers, state)]
    if stages.size() > 1:
        every = [None] * stages.size()
        dist.gather_object((layers, state), every if stages.rank() == 0 else None, group=stages, group_dst=0)
    if dist.get_rank() == 0:
        from safetensors.torch import save

        found = {name: is_turned for own, _ in every for name, is_turned in own.items()}
        config = adapter_config(settings, began, facts, list(found), turned=any(found.values()))
        (folder / ADAPTERS_CONFIG).write_text(json.dumps(config, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        tensors = {name: tensor for _, own in every for name, tensor in own.items()}
        (folder / ADAPTERS).write_bytes(save(tensors, metadata={"format": "pt"}))
