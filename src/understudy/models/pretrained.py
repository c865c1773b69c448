"""Pretrained models from a folder in the hub's format or a hub id, checked against the data and saved to the store."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypedDict

from understudy.errors import InputError
from understudy.models import remote_code
from understudy.models.architectures import other_head
from understudy.models.facts import (
    Config,
    Description,
    Facts,
    Transformers,
    TransformersDescription,
    described_facts,
    predicts_tokens,
    read_facts,
)
from understudy.models.labels import output_order, reorder_outputs
from understudy.models.normalization import normalization
from understudy.models.pretrained_files import hub_configuration, model_folder
from understudy.models.text_config import auto_config, class_config, language_config, language_model, text_config
from understudy.recipe import PretrainedModel
from understudy.store.files import Fingerprints

COMMIT = re.compile(r"[0-9a-f]{40}")

Head = Literal["kept", "new"]


class LoadingInfo(TypedDict):
    """The parts of transformers' loading info that are used here: the missing weights."""

    missing_keys: Iterable[str]
    mismatched_keys: Iterable[tuple[str, ...]]
    """Tuples that begin with the weight's name."""


def identity(model: PretrainedModel, fingerprints: Fingerprints, section: str) -> str:
    """The version that a pretrained model's name refers to now: the digest of a folder, or the commit of a hub id.

    Raises:
        InputError: there is no such folder or hub id, or the hub is unreachable and no commit is given.
    """
    folder = Path(model.pretrained)
    if folder.is_dir():
        return fingerprints.tree(folder)
    if model.revision and COMMIT.fullmatch(model.revision):
        return model.revision
    return hub_configuration(model, f"{section}.pretrained").parent.name


def fetch(model: PretrainedModel, examples: Path, folder: Path, section: str, head: Head = "kept") -> None:
    """Write a pretrained model's files into a folder, in the format of all models in the store.

    Args:
        model: the recipe's section.
        examples: the examples object that the model is used on.
        folder: an existing folder.
        section: the model's path in the recipe, for errors.
        head: "kept", or "new" if the model is trained further and may get a new head for the data's labels.

    Raises:
        InputError: pickle weights, remote code, NaN or infinite weights, labels, vocabulary or image size that do not
            fit the data, or an unknown normalisation of images.
    """
    import torch

    from understudy.models.build import tied_weights
    from understudy.models.files import save_model
    from understudy.models.tasks import task_model

    torch.manual_seed(0)
    facts = read_facts(examples)
    source = model_folder(model, section, weights=True)
    net = _load(model, source, folder, facts, section, head)
    if "labels" in facts and head == "kept":
        order = output_order(net.config.id2label, model.labels, facts["labels"], section)
        reorder_outputs(net, order, facts["labels"], section)
    description = _description(model, net.config, source, facts, section)
    wrapped = task_model(net, description)
    _check_finite(net, f"{section}.pretrained")
    aliases = tied_weights(wrapped)
    state = {name: tensor for name, tensor in wrapped.state_dict().items() if name not in aliases}
    tokenizer = examples / "tokenizer.json"
    save_model(folder, state, description, tokenizer if tokenizer.exists() else None, dtype=torch.float32)


def expected_description(model: PretrainedModel, facts: Facts, section: str, head: Head) -> Description:
    """The description of a pretrained model from its configuration, without reading or downloading weights.

    Args:
        model: the recipe's section.
        facts: the examples that the model is used on.
        section: the model's path in the recipe, for errors.
        head: as for fetch().

    Raises:
        InputError: as fetch(), as far as configuration, data size and vocabulary show.
    """
    source = model_folder(model, section, weights=False)
    with _input_errors(model, section):
        config = _config(model, source, facts, section, head)
    return _description(model, _kept_config(config, facts), source, facts, section)


def _kept_config(config: Any, facts: Facts) -> Any:
    """The configuration of a composite model's part that is saved; any other model's configuration itself."""
    return language_config(config) if predicts_tokens(facts) else config


def _load(model: PretrainedModel, source: Path, folder: Path, facts: Facts, section: str, head: Head) -> Any:
    """The network, its weights mapped from the source's files in their types; merged ones go to disk in `folder`."""
    import torch
    from transformers.utils import logging

    from understudy.models.build import auto_class
    from understudy.models.hub_weights import HubWeights

    logging.disable_progress_bar()
    logging.set_verbosity_error()
    with _input_errors(model, section):
        config = _config(model, source, facts, section, head)
        weights = HubWeights(source, model.allow_pickle)
        with torch.device("meta"):
            network_class = type(
                auto_class(facts["task"]).from_config(config, trust_remote_code=model.trust_remote_code)
            )
        with weights.merged_on_disk(folder):
            net, loading_info = network_class.from_pretrained(
                None,
                config=class_config(network_class, config),
                state_dict=weights.tensors,
                dtype=torch.float32,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
            )
    _check_weights(net, loading_info, f"{section}.pretrained", head)
    if predicts_tokens(facts):
        with _input_errors(model, section):
            net = language_model(net)
        net.config = auto_config(net.config, config)
    net.config.architectures = [type(net).__name__]  # the loaded class: deit has several, and files may name the base
    return net


@contextmanager
def _input_errors(model: PretrainedModel, section: str) -> Iterator[None]:
    """Raise problems with a model's files as InputError at the recipe's section, within the context."""
    from safetensors import SafetensorError

    key_path = f"{section}.pretrained"
    try:
        yield
    except (OSError, ValueError, SafetensorError) as error:
        if "trust_remote_code" in str(error):
            raise InputError(
                f"{key_path}: {model.pretrained} has code of its own, which would run here. Set "
                f"{section}.trust_remote_code: true if you trust its source, or take another model."
            ) from error
        raise InputError(f"{key_path}: {model.pretrained}: {' '.join(str(error).split())}") from error


def _config(model: PretrainedModel, source: Path, facts: Facts, section: str, head: Head) -> Any:
    """The network's configuration, checked against the examples."""
    from transformers import AutoConfig

    from understudy.models.describe import check_config

    trusted = {"trust_remote_code": model.trust_remote_code}
    config = AutoConfig.from_pretrained(source, local_files_only=True, **trusted, **_new_labels(facts, head))
    check_config(config, facts, f"{section}.pretrained")
    padding = facts.get("special_ids", {}).get("pad_token_id")
    if not predicts_tokens(facts) and padding is not None and text_config(config).pad_token_id is None:
        text_config(config).pad_token_id = padding  # decoders classify a text by its last token that is no padding
    if predicts_tokens(facts) and (other_class := other_head(config.to_dict(), facts["task"])):
        raise InputError(
            f"{section}.pretrained: {model.pretrained} is a {other_class}, not a language model; take one with a "
            "trained head"
        )
    _check_not_quantised(config, model, f"{section}.pretrained")
    return config


def _check_not_quantised(config: Any, model: PretrainedModel, key_path: str) -> None:
    if getattr(config, "quantization_config", None):
        raise InputError(f"{key_path}: {model.pretrained} is quantised; take the model that it was made from")


def _new_labels(facts: Facts, head: Head) -> Config:
    if "labels" not in facts or head == "kept":
        return {}
    labels = facts["labels"]
    return {"id2label": dict(enumerate(labels)), "label2id": {label: index for index, label in enumerate(labels)}}


def _check_weights(net: Any, loading_info: LoadingInfo, key_path: str, head: Head) -> None:
    """Refuse a model with random weights other than those of a head that will be trained."""
    uninitialized = {*loading_info["missing_keys"], *(mismatch[0] for mismatch in loading_info["mismatched_keys"])}
    body = {name for name in uninitialized if name.startswith(f"{net.base_model_prefix}.")}
    if missing := sorted(uninitialized if head == "kept" else body):
        raise InputError(
            f"{key_path}: has no fitting weights for {', '.join(missing[:3])}{', ...' if missing[3:] else ''}; "
            "take a model that was trained for this task" + ("" if body else ", or give the teacher a section train")
        )


def _check_finite(net: Any, key_path: str) -> None:
    """Refuse NaN and infinity among fp32 weights: the model's training diverged, or its files are damaged."""
    for name, weight in net.named_parameters():
        if weight.numel() and not all(end.float().isfinite() for end in weight.detach().aminmax()):
            raise InputError(
                f"{key_path}: {name} has weights that are not finite; take a model whose training did not diverge"
            )


def _description(
    model: PretrainedModel, config: Any, source: Path, facts: Facts, section: str
) -> TransformersDescription:
    net: Transformers = {"kind": "transformers", "config": config.to_diff_dict()}
    if getattr(config, "auto_map", None) and model.trust_remote_code:
        net["code"] = remote_code.read(source)
    description: TransformersDescription = {**described_facts(facts), **net}
    if "vocab_size" in facts:
        _check_vocabulary(config, facts, section)
    if "image" in facts:
        _check_shape(config, facts, section)
        description["mean"], description["std"] = normalization(model, source, facts, section)
    return description


def _check_vocabulary(config: Any, facts: Facts, section: str) -> None:
    size = getattr(text_config(config), "vocab_size", None)
    if size is None:
        raise InputError(
            f"{section}: {config.model_type} has no vocabulary size in its configuration; take another model"
        )
    if size < facts["vocab_size"]:
        raise InputError(
            f"{section}: has {size} tokens, the data has {facts['vocab_size']}; teacher and student need the same "
            "vocabulary: set data.text.tokenizer.pretrained to the same model. If it is that model already, tokens "
            "were added to its tokenizer (a pad token) and not to the model: remove them from tokenizer.json, or save "
            f"the model after resize_token_embeddings({facts['vocab_size']})"
        )


def _check_shape(config: Any, facts: Facts, section: str) -> None:
    size = getattr(config, "image_size", facts["image"]["size"])
    channels = getattr(config, "num_channels", facts["image"]["channels"])
    if (size, channels) != (facts["image"]["size"], facts["image"]["channels"]):
        raise InputError(
            f"{section}: takes images of {size} x {size} pixels in {channels} channels; set data.image.size={size} and "
            f"data.image.channels={channels}"
        )
