"""Facts about examples, from examples.json, and descriptions of saved models, from understudy.json."""

import json
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict, cast

DESCRIPTION = "understudy.json"
"""A saved model's description, beside its weights."""
WEIGHTS, CONFIG, TOKENIZER = "model.safetensors", "config.json", "tokenizer.json"
"""Its other files, with the hub's names; not every model has the last two."""
TOKENIZER_FILES = (TOKENIZER, "tokenizer_config.json", "chat_template.jinja", "generation_config.json")
"""The tokenizer and a chat server's files beside it; the same in examples and in all models trained on them."""
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


class SpecialIds(TypedDict):
    """Ids of special tokens, with their names in a model's config.json."""

    eos_token_id: NotRequired[int | list[int]]
    bos_token_id: NotRequired[int]
    pad_token_id: NotRequired[int]


class Facts(TypedDict):
    """Facts about examples and models of them. The task decides which keys are present."""

    task: str
    labels: NotRequired[list[str]]
    """The classes of a prediction; without them it is one of the vocabulary's tokens."""
    image: NotRequired[ImageShape]
    mean: NotRequired[list[float]]
    """The mean of x / 255, per channel."""
    std: NotRequired[list[float]]
    """The standard deviation of x / 255, per channel."""
    vocab_size: NotRequired[int]
    eos_id: NotRequired[int]
    bos_id: NotRequired[int]
    """The first token of a document's inputs, if the tokenizer adds one; without it, inputs begin with the end-of-text
    token. It is context, and never a target."""
    special_ids: NotRequired[SpecialIds]
    """Special tokens of a pretrained tokenizer, for servers; training does not read them."""
    sequence_length: NotRequired[int]
    packing: NotRequired[Literal["documents"]]
    """Set for examples whose sequences consist of whole documents; not part of a model's description."""
    details: NotRequired[dict[str, int]]
    """Facts that the task's own module alone reads."""
    notes: NotRequired[list[str]]
    """Notes on the preparation for the user; not part of a model's description."""
    tokens: NotRequired[dict[str, int]]
    """Number of tokens by split, end-of-text tokens included; not part of a model's description."""


DESCRIBED = (
    "task",
    "labels",
    "image",
    "mean",
    "std",
    "vocab_size",
    "eos_id",
    "sequence_length",
    "bos_id",
    "special_ids",
    "details",
)
"""The facts about examples that belong in a model's description."""


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


class TransformersDescription(Facts, Transformers):
    """understudy.json of a model from transformers."""


class FactoryDescription(Facts, Factory):
    """understudy.json of a user's model."""


Description = TransformersDescription | FactoryDescription


def described_facts(facts: Facts) -> Facts:
    """The facts about examples that belong in a model's description."""
    described = {key: value for key, value in facts.items() if key in DESCRIBED}
    return cast("Facts", described)


def predicts_tokens(facts: Facts) -> bool:
    """Whether a model predicts the next token at each position of a sequence, and not a label."""
    return "labels" not in facts


def output_size(facts: Facts) -> int:
    """The number of logits of a prediction."""
    return len(facts["labels"]) if "labels" in facts else facts["vocab_size"]


def first_token(facts: Facts) -> int:
    """The token from which a document's first token is predicted."""
    return facts.get("bos_id", facts["eos_id"])


def keeps_apart(facts: Facts) -> bool:
    """Whether sequences consist of several documents, which do not attend to each other."""
    return "packing" in facts


def data_settings(facts: Facts) -> dict[str, int]:
    """A model's settings that follow from its examples, under transformers' names."""
    settings = {}
    if "labels" in facts:
        settings["num_labels"] = len(facts["labels"])
    if "image" in facts:
        settings |= {"image_size": facts["image"]["size"], "num_channels": facts["image"]["channels"]}
    if "vocab_size" in facts:
        settings["vocab_size"] = facts["vocab_size"]
    return settings


def read_facts(examples: Path) -> Facts:
    """Read examples.json from an examples object's folder."""
    facts: Facts = json.loads((examples / "examples.json").read_text(encoding="utf-8"))
    return facts


def read_description(model: Path) -> Description:
    """Read understudy.json from a saved model's folder."""
    description: Description = json.loads((model / DESCRIPTION).read_text(encoding="utf-8"))
    return description
