"""A model's files in the hub's format, beside its description: saved, and loaded again."""

import json
import os
import re
import shutil
from pathlib import Path

import torch
from torch import Tensor, nn

from understudy.errors import InputError
from understudy.models.build import auto_class, build_model, tied_weights
from understudy.models.facts import (
    DESCRIPTION,
    Config,
    Description,
    ImageTransformers,
    TextTransformers,
    read_description,
)

WEIGHTS = "model.safetensors"


def save_model(folder: Path, state: dict[str, Tensor], description: Description, tokenizer: Path | None = None) -> None:
    """Write a model's files into a folder.

    Args:
        folder: an existing folder.
        state: whole tensors on the CPU, named as in the built model, tied weights once.
        description: as returned by describe().
        tokenizer: a tokenizer.json to go along.
    """
    tensors = {name.removeprefix("net."): tensor.contiguous() for name, tensor in state.items()}
    (folder / DESCRIPTION).write_text(json.dumps(description, indent=1, sort_keys=True) + "\n")
    _save_tensors(tensors, folder / WEIGHTS)
    shutil.copymode(folder / DESCRIPTION, folder / WEIGHTS)  # safetensors makes files that only their owner reads
    if description["kind"] == "transformers":
        for name, text in description.get("code", {}).items():
            (folder / name).write_text(text, encoding="utf-8")
        (folder / "config.json").write_text(json.dumps(_config(description), indent=1, sort_keys=True) + "\n")
    if tokenizer:
        (folder / "tokenizer.json").write_bytes(tokenizer.read_bytes())


def _config(description: ImageTransformers | TextTransformers) -> Config:
    """The content of config.json, with which transformers alone can load the model."""
    config = dict(description["config"])
    if not config.get("architectures"):
        config["architectures"] = [_architecture(description)]
    if description["task"] == "image-classification":
        config["id2label"] = {str(index): label for index, label in enumerate(description["labels"])}
        config["label2id"] = {label: index for index, label in enumerate(description["labels"])}
    return config


def _save_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    """As OSError when the system refuses, which safetensors puts into the text of an error of its own."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file(tensors, path, metadata={"format": "pt"})
    except SafetensorError as error:
        number = re.search(r"os error (\d+)", str(error))
        raise (OSError(int(number[1]), os.strerror(int(number[1]))) if number else error) from error


def _architecture(description: ImageTransformers | TextTransformers) -> str:
    from transformers import AutoConfig

    config = type(AutoConfig.for_model(**description["config"]))
    return str(auto_class(description["task"])._model_mapping[config].__name__)


def load_model(folder: Path, device: torch.device) -> nn.Module:
    """A saved model in evaluation mode, fp32.

    Raises:
        InputError: a factory model's code cannot be imported.
    """
    from safetensors.torch import load_file

    description = read_description(folder)
    model = build_model(description, where=str(folder))
    net = model.get_submodule("net")
    missing, unexpected = net.load_state_dict(load_file(folder / WEIGHTS), strict=False)
    ties = {name.removeprefix("net.") for name in tied_weights(model)}
    if unexpected or set(missing) - ties:
        raise InputError(f"{folder}: weights do not fit the model: missing {missing}, unexpected {unexpected}")
    return model.to(device).eval()
