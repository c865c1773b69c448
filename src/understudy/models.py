"""Models: built from their description, saved in the hub's format, loaded again; and their size.

Every model here maps a batch of the task's inputs to logits: images as uint8 (B, C, S, S) to (B, classes), tokens as
int64 (B, L) to (B, L, vocabulary).
"""

import importlib
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from understudy import remote_code
from understudy.errors import InputError

WEIGHTS = "model.safetensors"
DESCRIPTION = "understudy.json"


class ImageModel(nn.Module):
    """An image classifier that takes pixels as they are stored and normalises them itself."""

    mean: Tensor
    std: Tensor

    def __init__(self, net: nn.Module, mean: list[float], std: list[float]) -> None:
        super().__init__()
        self.net = net
        self.register_buffer("mean", 255 * torch.tensor(mean).view(1, -1, 1, 1), persistent=False)
        self.register_buffer("std", 255 * torch.tensor(std).view(1, -1, 1, 1), persistent=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """Images, uint8 (B, C, S, S), to logits (B, classes)."""
        return _logits(self.net((inputs - self.mean) / self.std))


class TextModel(nn.Module):
    """A causal language model. Pretrained ones may have more outputs than the tokenizer has tokens; those are cut."""

    def __init__(self, net: nn.Module, vocab_size: int) -> None:
        super().__init__()
        self.net = net
        self._vocab_size = vocab_size

    def forward(self, inputs: Tensor) -> Tensor:
        """Tokens, int64 (B, L), to logits (B, L, vocabulary)."""
        return _logits(self.net(inputs))[..., : self._vocab_size]


def _logits(output: Any) -> Tensor:
    logits = output if isinstance(output, Tensor) else output.logits
    assert isinstance(logits, Tensor)
    return logits


def build(description: dict[str, Any], where: str = "model") -> nn.Module:
    """A new model with random weights, drawn from torch's global generator."""
    if description["kind"] == "factory":
        net = factory_function(description["factory"], where)(**description["kwargs"])
        _check_module(net, description["factory"], where)
    elif "code" in description:
        net = remote_code.build(description)
    else:
        from transformers import AutoConfig

        config = AutoConfig.for_model(**description["config"])
        net = auto(description["task"]).from_config(config)
    return wrapped(net, description)


def factory_function(factory: str, where: str) -> Any:
    """The function that a recipe names as package.module:function.

    Raises:
        InputError: it cannot be imported.
    """
    module, _, name = factory.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, SyntaxError) as error:
        raise InputError(
            f"{where}.factory: {factory} cannot be imported ({error}). It is looked for in this environment, "
            "in PYTHONPATH and in the folder that understudy was started in."
        ) from error


def _check_module(net: Any, factory: str, where: str) -> None:
    if not isinstance(net, nn.Module):
        raise InputError(f"{where}.factory: {factory} returned {type(net).__name__}, not a torch.nn.Module")
    if any(torch.nn.parameter.is_lazy(parameter) for parameter in net.parameters()):
        raise InputError(f"{where}.factory: {factory} returned lazy modules; give their sizes, which the data decides")


def auto(task: str) -> Any:
    """The transformers class that builds a task's models from their configuration."""
    if task == "causal-lm":
        from transformers import AutoModelForCausalLM

        return AutoModelForCausalLM
    from transformers import AutoModelForImageClassification

    return AutoModelForImageClassification


def wrapped(net: nn.Module, description: dict[str, Any]) -> nn.Module:
    """A bare network with the task's inputs and outputs around it."""
    if description["task"] == "causal-lm":
        return TextModel(net, description["vocab_size"])
    return ImageModel(net, description["mean"], description["std"])


def repeated_weights(model: nn.Module) -> set[str]:
    """Names of parameters that are another one under a second name (tied weights); they are saved once."""
    seen, repeated = set[int](), set[str]()
    for name, parameter in model.named_parameters(remove_duplicate=False):
        (repeated.add(name) if id(parameter) in seen else seen.add(id(parameter)))
    return repeated


def save(folder: Path, state: dict[str, Tensor], description: dict[str, Any], tokenizer: Path | None = None) -> None:
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

    return str(auto(description["task"])._model_mapping[type(AutoConfig.for_model(**description["config"]))].__name__)


def load(folder: Path, device: torch.device) -> nn.Module:
    """A saved model in evaluation mode, fp32.

    Raises:
        InputError: a factory model's code cannot be imported.
    """
    from safetensors.torch import load_file

    description = json.loads((folder / DESCRIPTION).read_text())
    model = build(description, where=str(folder))
    net = model.get_submodule("net")
    missing, unexpected = net.load_state_dict(load_file(folder / WEIGHTS), strict=False)
    ties = {name.removeprefix("net.") for name in repeated_weights(model)}
    if unexpected or set(missing) - ties:
        raise InputError(f"{folder}: weights do not fit the model: missing {missing}, unexpected {unexpected}")
    return model.to(device).eval()


def parameters(folder: Path) -> int:
    """The number of a saved model's weights, tied ones counted once, buffers left out."""
    description = json.loads((folder / DESCRIPTION).read_text())
    # Without memory where that is possible: a factory may look at values while it builds.
    with torch.device("meta" if description["kind"] == "transformers" else "cpu"):
        model = build(description, where=str(folder))
    return sum(parameter.numel() for parameter in model.parameters())


def size(folder: Path) -> int:
    """Bytes of a saved model's weights on disk."""
    return (folder / WEIGHTS).stat().st_size


def flops(model: nn.Module, inputs: Tensor) -> int:
    """Floating-point operations of one forward pass, per example of the batch (torch's FlopCounterMode)."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(inputs)
    return int(counter.get_total_flops()) // len(inputs)
