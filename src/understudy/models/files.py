"""A model's files in the hub's format, beside its description: saved, and loaded again."""

import json
import os
import re
import shutil
from pathlib import Path

import torch
from torch import Tensor, nn

from understudy.errors import UnderstudyError
from understudy.models.build import auto_class, build_model, tied_weights
from understudy.models.facts import (
    CONFIG,
    DESCRIPTION,
    HISTORY,
    TOKENIZER,
    WEIGHTS,
    Config,
    Description,
    ImageTransformers,
    TextTransformers,
)
from understudy.store.objects import MANIFEST


def save_model(folder: Path, state: dict[str, Tensor], description: Description, tokenizer: Path | None = None) -> None:
    """Write a model's files into a folder.

    Args:
        folder: an existing folder.
        state: whole tensors on the CPU, named as in the built model, tied weights once.
        description: as returned by describe().
        tokenizer: a tokenizer.json to go along.
    """
    tensors = {name.removeprefix("net."): tensor.contiguous() for name, tensor in state.items()}
    for name, text in _texts(description).items():
        (folder / name).write_text(text, encoding="utf-8")
    _save_tensors(tensors, folder / WEIGHTS)
    shutil.copymode(folder / DESCRIPTION, folder / WEIGHTS)  # safetensors makes files that only their owner reads
    if tokenizer:
        (folder / TOKENIZER).write_bytes(tokenizer.read_bytes())


def _texts(description: Description) -> dict[str, str]:
    """The files of a model that follow from its description, by name."""
    texts = {DESCRIPTION: json.dumps(description, indent=1, sort_keys=True) + "\n"}
    if description["kind"] == "transformers":
        texts |= description.get("code", {})
        texts[CONFIG] = json.dumps(_config(description), indent=1, sort_keys=True) + "\n"
    return texts


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


def load_model(folder: Path, description: Description, device: torch.device) -> nn.Module:
    """A saved model in evaluation mode, fp32.

    Args:
        folder: the saved model's.
        description: what the model is, from whom the caller trusts: it decides what code runs (see trust.py).
        device: where the model shall be.

    Raises:
        InputError: a factory model's code cannot be imported.
        UnderstudyError: the folder's files are not those of such a model.
    """
    _check_files(folder, description)
    model = build_model(description, where=str(folder))
    model.get_submodule("net").load_state_dict(_fitting_weights(folder / WEIGHTS, model), strict=False)
    return model.to(device).eval()


def _check_files(folder: Path, description: Description) -> None:
    """Refuse a folder with other files than save_model() writes: whoever serves the model would read them."""
    texts = _texts(description)
    others = {path.name for path in folder.iterdir()} - {WEIGHTS, TOKENIZER, HISTORY, MANIFEST}
    for name in sorted(texts.keys() | others):
        path = folder / name
        if name not in texts:
            raise UnderstudyError(f"{path}: is no file of a saved model; move its folder away, and run again")
        if not path.is_file() or _content(name, path.read_text(encoding="utf-8")) != _content(name, texts[name]):
            raise UnderstudyError(f"{path}: does not fit {DESCRIPTION}; move the folder away, and run again")


def _content(name: str, text: str) -> object:
    """What a file says: another version of this package may have laid out its JSON otherwise."""
    try:
        return json.loads(text) if name.endswith(".json") else text
    except ValueError:
        return None


def _fitting_weights(path: Path, model: nn.Module) -> dict[str, Tensor]:
    """A file's tensors, which have the names, shapes and types that the model's have."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        found: dict[str, Tensor] = load_file(path)
    except (OSError, SafetensorError) as error:
        raise UnderstudyError(
            f"{path}: is no safetensors file ({error}); move its folder away, and run again"
        ) from error
    net = model.get_submodule("net")
    expected = net.state_dict()
    ties = {name.removeprefix("net.") for name in tied_weights(model)}
    missing, unexpected = expected.keys() - found.keys() - ties, found.keys() - expected.keys()
    different = {name for name in found.keys() & expected.keys() if _form(found[name]) != _form(expected[name])}
    if wrong := sorted(missing | unexpected | different):
        raise UnderstudyError(
            f"{path}: its weights do not fit the model: missing {sorted(missing)[:3]}, unexpected "
            f"{sorted(unexpected)[:3]}, of another shape or type {sorted(different)[:3]} ({len(wrong)} in all); move "
            "the folder away, and run again"
        )
    return found


def _form(tensor: Tensor) -> tuple[torch.Size, torch.dtype]:
    return tensor.shape, tensor.dtype
