"""Adapters kept apart: two files in peft's format, beside the model that they are merged into.

They are for whoever has the model that they began with, and serves several adapters on it. They do not have the names
that peft looks for: transformers, where peft is installed, would add them to a model that has them already.
"""

import json
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn

from understudy.models.adapter_config import adapter_config
from understudy.models.adapters import adapters, trained_whole, turned
from understudy.models.facts import ADAPTERS, ADAPTERS_CONFIG, Facts
from understudy.models.parts import whole
from understudy.recipe import Lora, Model

PREFIX = "base_model.model."
"""Of names in peft's files, before those that transformers gives."""


def save_adapters(
    folder: Path, model: nn.Module, settings: Lora, began: Model, facts: Facts, stages: dist.ProcessGroup
) -> None:
    """Write adapters, and what else was trained. To be called on every rank.

    Args:
        folder: an existing folder.
        model: with adapters, as this rank holds it.
        settings: the recipe's.
        began: what the recipe says of the model that they began with.
        facts: of what that is for.
        stages: the ranks with other layers.
    """
    layers = {_plain(name): turned(layer) for name, layer, _ in adapters(model)}
    every: list[Any] = [None] * stages.size()
    own = layers, trained_whole(model, settings), _trained(model)
    dist.gather_object(own, every if stages.rank() == 0 else None, group=stages, group_dst=0)
    if dist.get_rank() > 0:
        return
    from safetensors.torch import save

    found = {name: is_turned for layers, _, _ in every for name, is_turned in layers.items()}
    modules = [name for _, modules, _ in every for name in modules]
    config = adapter_config(settings, began, facts, list(found), modules, turned=any(found.values()))
    (folder / ADAPTERS_CONFIG).write_text(json.dumps(config, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    state = {name: tensor.contiguous() for _, _, trained in every for name, tensor in trained.items()}
    (folder / ADAPTERS).write_bytes(save(state, metadata={"format": "pt"}))


def _trained(model: nn.Module) -> dict[str, Tensor]:
    """By peft's names: the factors of adapters, and the weights of modules that are trained as ever; whole."""
    inside, state = set[int](), dict[str, Tensor]()
    for name, _, adapter in adapters(model):
        for factor, weight in (("lora_A", adapter.a), ("lora_B", adapter.b)):
            inside.add(id(weight))
            state[f"{PREFIX}{_plain(name)}.{factor}.weight"] = whole(weight.detach()).cpu()
    for name, weight in model.named_parameters():
        if weight.requires_grad and id(weight) not in inside:
            state[f"{PREFIX}{_plain(name)}"] = whole(weight.detach()).cpu()
    return state


def _plain(name: str) -> str:
    """A name as transformers gives it."""
    return name.removeprefix("net.")
