"""A model's files in the hub's format, beside its description: saved, and loaded again."""

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from understudy.errors import InputError
from understudy.models.build import auto_class, build_model, tied_weights

WEIGHTS = "model.safetensors"


DESCRIPTION = "understudy.json"


def save_model(
    folder: Path, state: dict[str, Tensor], description: dict[str, Any], tokenizer: Path | None = None
) -> None:
    """Write a model's files into a folder.

    Args:
        folder: an existing folder.
        state: whole tensors on the CPU, named as in the built model, tied weights once.
        description: as returned by description.describe().
        tokenizer: a tokenizer.json to go along.
    """
    tensors = {name.removeprefix("net."): tensor.contiguous() for name, tensor in state.items()}
    (folder / DESCRIPTION).write_text(json.dumps(description, indent=1, sort_keys=True) + "\n")
    _save_tensors(tensors, folder / WEIGHTS)
    shutil.copymode(folder / DESCRIPTION, folder / WEIGHTS)  # safetensors makes files that only their owner reads
    for name, text in description.get("code", {}).items():
        (folder / name).write_text(text, encoding="utf-8")
    if description["kind"] == "transformers":
        named = {} if "code" in description else {"architectures": [_architecture(description)]}
        config = {**description["config"], **named}
        if "labels" in description:
            config["id2label"] = {str(index): label for index, label in enumerate(description["labels"])}
            config["label2id"] = {label: index for index, label in enumerate(description["labels"])}
        (folder / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
    if tokenizer:
        (folder / "tokenizer.json").write_bytes(tokenizer.read_bytes())


def _save_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    """As OSError when the system refuses, which safetensors puts into the text of an error of its own."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file(tensors, path, metadata={"format": "pt"})
    except SafetensorError as error:
        number = re.search(r"os error (\d+)", str(error))
        raise (OSError(int(number[1]), os.strerror(int(number[1]))) if number else error) from error


def _architecture(description: dict[str, Any]) -> str:
    from transformers import AutoConfig

    return str(
        auto_class(description["task"])._model_mapping[type(AutoConfig.for_model(**description["config"]))].__name__
    )


def load_model(folder: Path, device: torch.device) -> nn.Module:
    """A saved model in evaluation mode, fp32.

    Raises:
        InputError: a factory model's code cannot be imported.
    """
    from safetensors.torch import load_file

    description = json.loads((folder / DESCRIPTION).read_text())
    model = build_model(description, where=str(folder))
    net = model.get_submodule("net")
    missing, unexpected = net.load_state_dict(load_file(folder / WEIGHTS), strict=False)
    ties = {name.removeprefix("net.") for name in tied_weights(model)}
    if unexpected or set(missing) - ties:
        raise InputError(f"{folder}: weights do not fit the model: missing {missing}, unexpected {unexpected}")
    return model.to(device).eval()
