"""Facts about examples, from examples.json, and descriptions of saved models, from understudy.json."""

import json
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict, TypeGuard

DESCRIPTION = "understudy.json"
"""A saved model's description, beside its weights."""
WEIGHTS, CONFIG, TOKENIZER = "model.safetensors", "config.json", "tokenizer.json"
"""Its other files, with the hub's names; the last two are not in every model."""
TOKENIZER_FILES = (TOKENIZER, "tokenizer_config.json", "chat_template.jinja", "generation_config.json")
"""The tokenizer and a chat server's files beside it; the same in examples and all models trained on them."""
ADAPTERS, ADAPTERS_CONFIG = "lora.adapter", "lora.json"
"""peft's adapter_model.safetensors and adapter_config.json, renamed: servers load every file whose name ends like those
of weights.
"""
HISTORY = "history.json"
"""A training's curve, saved beside the trained model."""

BESIDE = frozenset({*TOKENIZER_FILES, HISTORY, ADAPTERS, ADAPTERS_CONFIG})
"""Files that are allowed beside a model's weights and description."""

Config = dict[str, Any]
"""A transformers configuration as JSON; its keys depend on the architecture."""


class ImageShape(TypedDict):
    """Images of size x size pixels."""

    size: int
    channels: int
    background: NotRequired[Literal["black"]]
    """The background of transparent images, if it is not white."""


class AboutImages(TypedDict):
    """Facts about examples and models of the task image-classification."""

    task: Literal["image-classification"]
    labels: list[str]
    image: ImageShape
    mean: list[float]
    """The mean of x / 255, per channel."""
    std: list[float]
    """The standard deviation of x / 255, per channel."""


class SpecialIds(TypedDict):
    """Ids of special tokens, with their names in a model's config.json."""

    eos_token_id: int | list[int]
    bos_token_id: NotRequired[int]
    pad_token_id: NotRequired[int]


class AboutTexts(TypedDict):
    """Facts about examples and models of the task causal-lm."""

    task: Literal["causal-lm"]
    vocab_size: int
    eos_id: int
    bos_id: NotRequired[int]
    """The first token of a document's inputs, if the tokenizer adds one; without it, inputs begin with the end-of-text
    token. It is context, and never a target."""
    special_ids: NotRequired[SpecialIds]
    """Special tokens of a pretrained tokenizer, for servers; training does not read them."""
    sequence_length: int
    packing: NotRequired[Literal["documents"]]
    """Set for examples whose sequences consist of whole documents; not part of a model's description."""


Facts = AboutImages | AboutTexts


class Transformers(TypedDict):
    """A network from the transformers library."""

    kind: Literal["transformers"]
    config: Config
    code: NotRequired[dict[str, str]]
    """The model's bundled code by file name, if there is any."""


class Factory(TypedDict):
    """A network that a user's function returns."""

    kind: Literal["factory"]
    factory: str
    kwargs: dict[str, Any]


class ImageTransformers(AboutImages, Transformers):
    """understudy.json of an image classifier from transformers."""


class ImageFactory(AboutImages, Factory):
    """understudy.json of a user's image classifier."""


class TextTransformers(AboutTexts, Transformers):
    """understudy.json of a language model from transformers."""


class TextFactory(AboutTexts, Factory):
    """understudy.json of a user's language model."""


Description = ImageTransformers | ImageFactory | TextTransformers | TextFactory


def about_images(facts: AboutImages) -> AboutImages:
    """The facts about examples that belong in a model's description."""
    return {
        "task": facts["task"],
        "labels": facts["labels"],
        "image": facts["image"],
        "mean": facts["mean"],
        "std": facts["std"],
    }


def about_texts(facts: AboutTexts) -> AboutTexts:
    """The facts about examples that belong in a model's description."""
    kept: AboutTexts = {
        "task": facts["task"],
        "vocab_size": facts["vocab_size"],
        "eos_id": facts["eos_id"],
        "sequence_length": facts["sequence_length"],
    }
    if "bos_id" in facts:
        kept["bos_id"] = facts["bos_id"]
    if "special_ids" in facts:
        kept["special_ids"] = facts["special_ids"]
    return kept


def first_token(facts: AboutTexts) -> int:
    """The token from which a document's first token is predicted."""
    return facts.get("bos_id", facts["eos_id"])


def keeps_apart(facts: Facts) -> TypeGuard[AboutTexts]:
    """Whether sequences consist of several documents, each of which attends to itself alone."""
    return "packing" in facts


def shape_of(facts: Facts) -> dict[str, int]:
    """A model's settings that follow from its examples, under transformers' names."""
    if facts["task"] == "causal-lm":
        return {"vocab_size": facts["vocab_size"]}
    image = facts["image"]
    return {"num_labels": len(facts["labels"]), "image_size": image["size"], "num_channels": image["channels"]}


def read_facts(examples: Path) -> Facts:
    """Read examples.json from an examples object's folder."""
    facts: Facts = json.loads((examples / "examples.json").read_text(encoding="utf-8"))
    return facts


def read_description(model: Path) -> Description:
    """Read understudy.json from a saved model's folder."""
    description: Description = json.loads((model / DESCRIPTION).read_text(encoding="utf-8"))
    return description
