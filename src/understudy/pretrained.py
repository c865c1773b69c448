"""Pretrained models: a folder in the hub's format or a hub id, checked against the data, saved as every model is."""

import json
import re
from pathlib import Path
from typing import Any

from understudy.data.hub import hub_file
from understudy.errors import InputError
from understudy.recipe import PretrainedModel
from understudy.store.files import Fingerprints

COMMIT = re.compile(r"[0-9a-f]{40}")


def identity(model: PretrainedModel, fingerprints: Fingerprints, where: str) -> str:
    """What the recipe's words point to now: a folder's content, or a hub id's commit.

    Raises:
        InputError: there is no such folder or hub id, or the hub cannot be asked and no commit is given.
    """
    folder = Path(model.pretrained)
    if folder.is_dir():
        return fingerprints.tree(folder)
    if model.revision and COMMIT.fullmatch(model.revision):
        return model.revision
    path = hub_file(model.pretrained, "config.json", model.revision, f"{where}.pretrained")
    if path is None:
        raise InputError(f"{where}.pretrained: {model.pretrained} has no config.json; is it a transformers model?")
    return path.parent.name


def fetch(model: PretrainedModel, examples: Path, folder: Path, where: str, head: str = "kept") -> None:
    """Write a pretrained model's files into a folder, in the form that every model of the store has.

    Args:
        model: the recipe's section.
        examples: the examples object that the model is to work on.
        folder: an existing folder.
        where: the recipe's path of the section, for errors.
        head: "kept", or "new" when the model is trained further and may get a new head for the data's labels.

    Raises:
        InputError: pickle weights, remote code, or labels, vocabulary or image size that do not fit the data.
    """
    import torch

    from understudy import models

    torch.manual_seed(0)
    facts = json.loads((examples / "examples.json").read_text())
    source = _source(model, where)
    net = _load(model, source, facts, where, head)
    description = _description(net.config, source, facts, where)
    wrapped = models.wrapped(net, description)
    aliases = models.repeated_weights(wrapped)
    state = {name: tensor for name, tensor in wrapped.state_dict().items() if name not in aliases}
    tokenizer = examples / "tokenizer.json"
    models.save(folder, state, description, tokenizer if tokenizer.exists() else None)


def _source(model: PretrainedModel, where: str) -> Path:
    """The folder with the model's own files, fetched from the hub when it is not local."""
    folder = Path(model.pretrained)
    place = f"{where}.pretrained"
    if not folder.is_dir():
        config = hub_file(model.pretrained, "config.json", model.revision, place)
        if config is None:
            raise InputError(f"{place}: {model.pretrained} has no config.json; is it a transformers model?")
        folder = config.parent
        names = ["model.safetensors", "model.safetensors.index.json", "preprocessor_config.json"]
        found = [hub_file(model.pretrained, name, folder.name, place) for name in names]
        if found[1]:
            for shard in sorted(set(json.loads(found[1].read_text())["weight_map"].values())):
                hub_file(model.pretrained, shard, folder.name, place)
        if model.allow_pickle and not (found[0] or found[1]):
            hub_file(model.pretrained, "pytorch_model.bin", folder.name, place)
    if not (folder / "config.json").exists():
        raise InputError(f"{place}: {folder} has no config.json; give a folder in the hub's format")
    if not any(folder.glob("*.safetensors")) and not model.allow_pickle:
        raise InputError(
            f"{place}: {model.pretrained} has no safetensors. Pickle files run code when they are opened: convert "
            f"them, or say {where}.allow_pickle: true if you trust their source."
        )
    return folder


def _load(model: PretrainedModel, source: Path, facts: dict[str, Any], where: str, head: str) -> Any:
    import torch
    from transformers.utils import logging

    from understudy.models import auto

    logging.disable_progress_bar()
    logging.set_verbosity_error()
    labels = {}
    if facts["task"] == "image-classification" and head == "new":
        labels = {"num_labels": len(facts["labels"]), "ignore_mismatched_sizes": True}
    try:
        return auto(facts["task"]).from_pretrained(
            source,
            local_files_only=True,
            use_safetensors=None if model.allow_pickle else True,
            trust_remote_code=model.trust_remote_code,
            dtype=torch.float32,
            **labels,
        )
    except (OSError, ValueError) as error:
        raise InputError(f"{where}.pretrained: {model.pretrained}: {' '.join(str(error).split())}") from error


def _description(config: Any, source: Path, facts: dict[str, Any], where: str) -> dict[str, Any]:
    common = {"task": facts["task"], "kind": "transformers", "config": config.to_diff_dict()}
    if facts["task"] == "causal-lm":
        if config.vocab_size < facts["vocab_size"]:
            raise InputError(
                f"{where}: knows {config.vocab_size} tokens, the data has {facts['vocab_size']}; teacher and student "
                "need one vocabulary: set data.text.tokenizer.pretrained to the same model"
            )
        return {**common, **{key: facts[key] for key in ("vocab_size", "sequence_length", "eos_id")}}
    _check_labels([config.id2label[index] for index in range(config.num_labels)], facts["labels"], where)
    size = getattr(config, "image_size", facts["image"]["size"])
    channels = getattr(config, "num_channels", facts["image"]["channels"])
    if (size, channels) != (facts["image"]["size"], facts["image"]["channels"]):
        raise InputError(
            f"{where}: sees images of {size} x {size} pixels in {channels} channels; set data.image.size={size} and "
            f"data.image.channels={channels}"
        )
    path = source / "preprocessor_config.json"
    own = json.loads(path.read_text()) if path.exists() else {}
    mean, std = own.get("image_mean", facts["mean"]), own.get("image_std", facts["std"])
    return {**common, "labels": facts["labels"], "image": facts["image"], "mean": mean, "std": std}


def _check_labels(own: list[str], data: list[str], where: str) -> None:
    unnamed = own == [f"LABEL_{index}" for index in range(len(own))]
    if own == data or (unnamed and len(own) == len(data)):
        return
    raise InputError(
        f"{where}: its {len(own)} labels ({', '.join(own[:5])}, ...) are not the data's {len(data)} "
        f"({', '.join(data[:5])}, ...); give the teacher a section train, or use data with its labels"
    )
