"""Data and models as a recipe and models' configurations tell of them, before any data or weight was read."""

from dataclasses import dataclass

import torch
from torch import Tensor

from understudy.data.loader import Indices
from understudy.data.tokenizer import pretrained, vocabulary_size
from understudy.models.describe import describe
from understudy.models.facts import AboutTexts, Description, Facts, keeps_apart
from understudy.models.pretrained import Head, foreseen
from understudy.recipe import Model, PretrainedModel, Recipe

CLASSES = 10
"""Of images whose labels nobody has counted yet; their last layer is small."""


def tokens_of(recipe: Recipe) -> int:
    """How many tokens the recipe's vocabulary has, at most; of a pretrained tokenizer its files tell.

    Raises:
        InputError: there is no such tokenizer.
    """
    if recipe.task != "causal-lm":
        return 0
    settings = recipe.text.tokenizer
    return vocabulary_size(pretrained(settings)[0]) if settings.pretrained else settings.vocab_size


def facts_of(recipe: Recipe, tokens: int) -> Facts:
    """What examples.json is going to say, as far as it decides what a model takes.

    Args:
        recipe: of which nothing was read yet.
        tokens: the size of a vocabulary, for texts.
    """
    if recipe.task == "causal-lm":
        text = recipe.text
        facts: AboutTexts = {
            "task": "causal-lm",
            "vocab_size": tokens,
            "eos_id": 0,
            "sequence_length": text.sequence_length,
        }
        if text.packing == "documents":
            facts["packing"] = "documents"
        return facts
    image = recipe.image
    return {
        "task": "image-classification",
        "labels": [str(label) for label in range(CLASSES)],
        "image": {"size": image.size, "channels": image.channels},
        "mean": [0.5] * image.channels,
        "std": [0.5] * image.channels,
    }


def description_of(model: Model, facts: Facts, where: str, head: Head) -> Description:
    """What a model is; of a pretrained one its configuration is read, and fetched from the hub.

    Args:
        model: the recipe's section.
        facts: of its examples.
        where: the recipe's path of it, for errors.
        head: a pretrained one's, as for fetch().

    Raises:
        InputError: it cannot be, or its files are not there.
    """
    if isinstance(model, PretrainedModel):
        return foreseen(model, facts, where, head)
    return describe(model, facts, where)


@dataclass(frozen=True)
class Imagined:
    """Examples without content."""

    facts: Facts
    count: int

    def __len__(self) -> int:
        return self.count

    def batch(self, indices: Indices) -> tuple[Tensor, Tensor]:
        """Inputs and labels of these examples."""
        if self.facts["task"] == "causal-lm":
            shape = (len(indices), self.facts["sequence_length"])
            return torch.zeros(shape, dtype=torch.int64), torch.zeros(shape, dtype=torch.int64)
        image = self.facts["image"]
        pixels = torch.zeros(len(indices), image["channels"], image["size"], image["size"], dtype=torch.uint8)
        return pixels, torch.zeros(len(indices), dtype=torch.int64)

    def positions(self, indices: Indices) -> Tensor | None:
        """Where in its document each token is, where sequences are of several."""
        if not keeps_apart(self.facts):
            return None
        return torch.zeros(len(indices), self.facts["sequence_length"], dtype=torch.int64)

    def targets(self, indices: Indices) -> int:
        """How many targets these examples have together."""
        return len(indices) * (self.facts["sequence_length"] if self.facts["task"] == "causal-lm" else 1)
