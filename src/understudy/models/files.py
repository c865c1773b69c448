"""Saving and loading of a model's files, in the hub's format plus the model's description."""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from understudy.errors import UnderstudyError
from understudy.models.build import auto_class, empty_model, is_empty, materialize, tied_weights
from understudy.models.facts import (
    BESIDE,
    CONFIG,
    DESCRIPTION,
    TOKENIZER_FILES,
    Config,
    Description,
    TransformersDescription,
)
from understudy.models.initial import compute_buffers
from understudy.models.rounded import QuantizedLinear
from understudy.models.weight_files import INDEX, weight_files
from understudy.models.weights import Header, LazyTensor, header, opened, write_weights
from understudy.store.objects import MANIFEST


def save_model(
    folder: Path,
    state: Mapping[str, Tensor | LazyTensor],
    description: Description,
    tokenizer: Path | None = None,
    stages: dist.ProcessGroup | None = None,
    copies: dist.ProcessGroup | None = None,
    dtype: torch.dtype | None = None,
) -> None:
    """Write a model's files into a folder. To be called on every rank.

    Args:
        folder: an existing folder.
        state: tensors named as in the built model, tied weights once; they may be sharded, or computed later.
        description: as returned by describe().
        tokenizer: a tokenizer.json to copy, with the files beside it for a chat server.
        stages: the process group of pipeline stages, which have other tensors.
        copies: the process group of ranks with the same tensors; default: all.
        dtype: the type that floating-point tensors are saved in; default: unchanged.
    """
    if not dist.is_initialized() or dist.get_rank() == 0:
        for name, text in _texts(description).items():
            (folder / name).write_text(text, encoding="utf-8")
        for path in [tokenizer.with_name(name) for name in TOKENIZER_FILES] if tokenizer else ():
            if path.exists():
                (folder / path.name).write_bytes(path.read_bytes())
    tensors = {name.removeprefix("net."): tensor for name, tensor in state.items()}
    write_weights(folder, tensors, stages=stages, copies=copies, dtype=dtype)


def _texts(description: Description) -> dict[str, str]:
    """The contents of the files that follow from a model's description, by name."""
    texts = {DESCRIPTION: json.dumps(description, indent=1, sort_keys=True) + "\n"}
    if description["kind"] == "transformers":
        texts |= description.get("code", {})
        texts[CONFIG] = json.dumps(_config(description), indent=1, sort_keys=True) + "\n"
    return texts


def _config(description: TransformersDescription) -> Config:
    """The content of config.json, so that transformers alone can load the model."""
    config = dict(description["config"])
    if not config.get("architectures"):  # built from a recipe; a pretrained model's configuration is complete
        config_object = _config_object(description)
        config["architectures"] = [str(auto_class(description["task"])._model_mapping[type(config_object)].__name__)]
        ids = description.get("special_ids", {})
        padding = ids.get("pad_token_id")
        if (
            padding is not None and getattr(config_object, "pad_token_id", None) is None
        ):  # some compute positions from it
            config["pad_token_id"] = padding
    if "labels" in description:
        config["id2label"] = {str(index): label for index, label in enumerate(description["labels"])}
        config["label2id"] = {label: index for index, label in enumerate(description["labels"])}
    return config


def _config_object(description: TransformersDescription) -> Any:
    """The model's transformers configuration object."""
    from transformers import AutoConfig

    return AutoConfig.for_model(**description["config"])


def load_model(folder: Path, description: Description, device: torch.device) -> nn.Module:
    """A saved model in evaluation mode, fp32.

    Args:
        folder: the saved model's.
        description: of the model, from a trusted source: it decides which code runs (see trust.py).
        device: the model's device.

    Raises:
        InputError: a factory model's code cannot be imported.
        UnderstudyError: the folder's files do not fit the description.
    """
    check_files(folder, description)
    model = empty_model(description, section=str(folder))
    read_weights(model, folder, device)
    return model.eval()


def read_weights(
    model: nn.Module,
    folder: Path,
    device: torch.device,
    full_model: nn.Module | None = None,
    sources: Mapping[str, str] | None = None,
) -> None:
    """Load a saved model's weights; each rank reads only its shards.

    Args:
        model: as returned by empty_model(), sharded or not.
        folder: the saved model's.
        device: the model's device.
        full_model: a model with all layers, to check the folder against, if `model` has only some of them.
        sources: for the folder of another model: by the name of each of the model's tensors, the one to read, which the
            caller has checked to fit.

    Raises:
        UnderstudyError: the weights do not fit the model.
    """
    if computed := is_empty(model):
        materialize(model, device)
    else:
        model.to(device)
    net = model.get_submodule("net")
    with opened(folder) as weights, torch.no_grad():
        if sources is None:
            _check_fit(folder, weights.headers, full_model or model)
            sources = {name: name for name in weights.headers}
        for name, tensor in net.state_dict(keep_vars=True).items():
            if name in sources:
                weights.read(sources[name], tensor)
        for name, layer in net.named_modules():
            if isinstance(layer, QuantizedLinear):
                layer.fill(partial(weights.rows, f"{name}.weight"))
    if computed:
        compute_buffers(net)


def check_files(folder: Path, description: Description) -> None:
    """Refuse a folder with files that save_model() does not write: a server of the model would read them."""
    texts = _texts(description)
    allowed = {path.name for path in weight_files(folder)} | BESIDE | {INDEX, MANIFEST}
    unexpected = {path.name for path in folder.iterdir()} - allowed
    for name in sorted(texts.keys() | unexpected):
        path = folder / name
        if name not in texts:
            raise UnderstudyError(f"{path}: is not a file of a saved model; move its folder away, and run again")
        if not path.is_file() or _content(name, path.read_text(encoding="utf-8")) != _content(name, texts[name]):
            raise UnderstudyError(f"{path}: does not fit {DESCRIPTION}; move the folder away, and run again")


def _content(name: str, text: str) -> object:
    """A file's content to compare; JSON is parsed, since other versions of this package may format it differently."""
    try:
        return json.loads(text) if name.endswith(".json") else text
    except ValueError:
        return None


def _check_fit(folder: Path, headers: Mapping[str, Header], model: nn.Module) -> None:
    """Check that a folder's weights have the names, shapes and types of the model's."""
    expected = {name: header(tensor) for name, tensor in model.get_submodule("net").state_dict().items()}
    ties = {name.removeprefix("net.") for name in tied_weights(model)}
    missing, unexpected = expected.keys() - headers.keys() - ties, headers.keys() - expected.keys()
    different = {name for name in headers.keys() & expected.keys() if headers[name] != expected[name]}
    if mismatches := sorted(missing | unexpected | different):
        raise UnderstudyError(
            f"{folder}: its weights do not fit the model: missing {sorted(missing)[:3]}, unexpected "
            f"{sorted(unexpected)[:3]}, of another shape or type {sorted(different)[:3]} ({len(mismatches)} in all); "
            "move the folder away, and run again"
        )
