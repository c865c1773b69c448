"""Adapter files in peft's format, saved beside the model that the adapters are merged into.

Servers that run several adapters on one base model read them. The file names differ from peft's: if peft is installed,
transformers would add adapters of those names to a model into which they are already merged.
"""

import json
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import nn

from understudy.models.adapter_config import adapter_config
from understudy.models.adapters import adapters, weight_is_transposed
from understudy.models.facts import ADAPTERS, ADAPTERS_CONFIG, Facts
from understudy.models.parts import full_tensor
from understudy.recipe import Lora, Model


def save_adapters(
    folder: Path, model: nn.Module, settings: Lora, base: Model, facts: Facts, stages: dist.ProcessGroup
) -> None:
    """Write a model's adapters. To be called on every rank.

    Args:
        folder: an existing folder.
        model: this rank's part of the model, with adapters.
        settings: the recipe's section lora.
        base: the recipe's section of the base model.
        facts: the model's task and data.
        stages: the process group of pipeline stages, which have other layers.
    """
    layers, state = dict[str, bool](), dict[str, Any]()
    for name, layer, adapter in adapters(model):
        layer_name = name.removeprefix("net.")
        layers[layer_name] = weight_is_transposed(layer)
        for factor, weight in (("lora_A", adapter.a), ("lora_B", adapter.b)):
            state[f"base_model.model.{layer_name}.{factor}.weight"] = full_tensor(weight.detach()).cpu().contiguous()
    gathered: list[Any] = [(layers, state)]
    if stages.size() > 1:
        gathered = [None] * stages.size()
        dist.gather_object((layers, state), gathered if stages.rank() == 0 else None, group=stages, group_dst=0)
    if dist.get_rank() == 0:
        from safetensors.torch import save

        transposed = {name: is_transposed for layers, _ in gathered for name, is_transposed in layers.items()}
        config = adapter_config(settings, base, facts, list(transposed), transposed=any(transposed.values()))
        (folder / ADAPTERS_CONFIG).write_text(json.dumps(config, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        tensors = {name: tensor for _, state in gathered for name, tensor in state.items()}
        (folder / ADAPTERS).write_bytes(save(tensors, metadata={"format": "pt"}))
