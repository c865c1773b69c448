"""What examples are, as their examples.json says it, and what a saved model is, as its understudy.json does."""

import json
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict, TypeGuard

DESCRIPTION = "understudy.json"
"""A saved model's description, beside its weights."""
WEIGHTS, CONFIG, TOKENIZER = "model.safetensors", "config.json", "tokenizer.json"
"""Its other files, named as the hub has them; the last two are not in every model."""
TOKENIZER_FILES = (TOKENIZER, "tokenizer_config.json", "chat_template.jinja", "generation_config.json")
"""The tokenizer, and what a chat server reads beside it; the same in the examples and in all models trained on them."""
ADAPTERS, ADAPTERS_CONFIG = "lora.adapter", "lora.json"
"""What peft calls adapter_model.safetensors and adapter_config.json. Of names that end as those of weights do, servers
take all.
"""
HISTORY = "history.json"
"""A training's curve, which it leaves beside the model that it made."""

BESIDE = frozenset({*TOKENIZER_FILES, HISTORY, ADAPTERS, ADAPTERS_CONFIG})
"""What may be beside a model's weights and its own description."""

Config = dict[str, Any]
"""A configuration of transformers, as JSON: its keys are the architecture's."""


class ImageShape(TypedDict):
    """Images of size x size pixels."""

    size: int
    channels: int
    background: NotRequired[Literal["black"]]
    """What lies behind a transparent image, where it is not white."""


class AboutImages(TypedDict):
    """What is said of examples, and of a model, of the task image-classification."""

    task: Literal["image-classification"]
    labels: list[str]
    image: ImageShape
    mean: list[float]
    """Of x / 255, per channel; so is std."""
    std: list[float]


class SpecialIds(TypedDict):
    """Special tokens, as config.json of a model names them."""

    eos_token_id: int | list[int]
    bos_token_id: NotRequired[int]
    pad_token_id: NotRequired[int]


class AboutTexts(TypedDict):
    """What is said of examples, and of a model, of the task causal-lm."""

    task: Literal["causal-lm"]
    vocab_size: int
    eos_id: int
    bos_id: NotRequired[int]
    """The token that a document's inputs begin with, where the tokenizer adds one; otherwise it is the end-of-text
    token. It is context, and never a target."""
    special_ids: NotRequired[SpecialIds]
    """Of a pretrained tokenizer: what servers are told of its special tokens; training reads none of them."""
    sequence_length: int
    packing: NotRequired[Literal["documents"]]
    """Said of examples whose sequences are of whole documents; a model keeps nothing of it."""


Facts = AboutImages | AboutTexts


class Transformers(TypedDict):
    """A network of the transformers library."""

    kind: Literal["transformers"]
    config: Config
    code: NotRequired[dict[str, str]]
    """Its own code by file name, where it brings some."""


class Factory(TypedDict):
    """A network that a user's function returns."""

    kind: Literal["factory"]
    factory: str
    kwargs: dict[str, Any]


class ImageTransformers(AboutImages, Transformers):
    """understudy.json of an image classifier of transformers."""


class ImageFactory(AboutImages, Factory):
    """understudy.json of an image classifier of a user's."""


class TextTransformers(AboutTexts, Transformers):
    """understudy.json of a language model of transformers."""


class TextFactory(AboutTexts, Factory):
    """understudy.json of a language model of a user's."""


Description = ImageTransformers | ImageFactory | TextTransformers | TextFactory


def about_images(facts: AboutImages) -> AboutImages:
    """What a model keeps of its examples."""
    return {
        "task": facts["task"],
        "labels": facts["labels"],
        "image": facts["image"],
        "mean": facts["mean"],
        "std": facts["std"],
    }


def about_texts(facts: AboutTexts) -> AboutTexts:
    """What a model keeps of its examples."""
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
    """The token from which a document's first one is predicted."""
    return facts.get("bos_id", facts["eos_id"])


def keeps_apart(facts: Facts) -> TypeGuard[AboutTexts]:
    """Whether sequences are of several documents, each of which sees itself alone."""
    return "packing" in facts


def shape_of(facts: Facts) -> dict[str, int]:
    """What of a model follows from its examples, under the names that transformers has for it."""
    if facts["task"] == "causal-lm":
        return {"vocab_size": facts["vocab_size"]}
    image = facts["image"]
    return {"num_labels": len(facts["labels"]), "image_size": image["size"], "num_channels": image["channels"]}


def read_facts(examples: Path) -> Facts:
    """examples.json of an examples object's folder."""
    facts: Facts = json.loads((examples / "examples.json").read_text(encoding="utf-8"))
    return facts


def read_description(model: Path) -> Description:
    """understudy.json of a saved model's folder."""
    description: Description = json.loads((model / DESCRIPTION).read_text(encoding="utf-8"))
    return description
