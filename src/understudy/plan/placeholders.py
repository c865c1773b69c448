"""Placeholder examples and model descriptions, from the recipe and model configurations; no data or weight is read."""

from dataclasses import dataclass

import torch
from torch import Tensor

from understudy.data.loader import Indices
from understudy.data.tokenizer import loaded, vocabulary_size
from understudy.models.describe import describe
from understudy.models.facts import Description, Facts, keeps_apart, predicts_tokens
from understudy.models.pretrained import Head, expected_description
from understudy.recipe import Model, PretrainedModel, Recipe
from understudy.recipe.tasks import load

LABELS = 10
"""Labels assumed before they are counted; the last layer is small."""


def tokens_of(recipe: Recipe) -> int:
    """The largest vocabulary that the recipe allows; for a pretrained tokenizer, the size from its files.

    Raises:
        InputError: the pretrained tokenizer does not exist.
    """
    if not recipe.takes("data.text"):
        return 0
    settings = recipe.text.tokenizer
    return vocabulary_size(loaded(settings)) if settings.pretrained else settings.vocab_size


def facts_of(recipe: Recipe, tokens: int) -> Facts:
    """The expected examples.json, as far as it decides a model's size.

    Args:
        recipe: the recipe, before its data is read.
        tokens: the size of the vocabulary, for texts.
    """
    facts: Facts = {"task": recipe.task}
    if load(recipe.task).LABELLED:
        facts["labels"] = [str(label) for label in range(LABELS)]
    if recipe.takes("data.image"):
        channels = recipe.image.channels
        facts["image"] = {"size": recipe.image.size, "channels": channels}
        facts["mean"], facts["std"] = [0.5] * channels, [0.5] * channels
    if recipe.takes("data.text"):
        facts |= {"vocab_size": tokens, "eos_id": 0, "sequence_length": recipe.text.sequence_length}
        if recipe.text.packing == "documents":
            facts["packing"] = "documents"
    return facts


def description_of(model: Model, facts: Facts, where: str, head: Head) -> Description:
    """A model's description; a pretrained model's configuration is read, and fetched from the hub.

    Args:
        model: the recipe's section.
        facts: of its examples.
        where: the section's path, for errors.
        head: for a pretrained model, as in fetch().

    Raises:
        InputError: the model is invalid, or its files are missing.
    """
    if isinstance(model, PretrainedModel):
        return expected_description(model, facts, where, head)
    return describe(model, facts, where)


@dataclass(frozen=True)
class PlaceholderExamples:
    """Examples without content, all zeros."""

    facts: Facts
    count: int

    def __len__(self) -> int:
        return self.count

    def batch(self, indices: Indices) -> tuple[Tensor, Tensor]:
        """Inputs and labels of these examples."""
        if "image" in self.facts:
            image = self.facts["image"]
            inputs = torch.zeros(len(indices), image["channels"], image["size"], image["size"], dtype=torch.uint8)
        else:
            inputs = torch.zeros(len(indices), self.facts["sequence_length"], dtype=torch.int64)
        targets = inputs.shape if predicts_tokens(self.facts) else inputs.shape[:1]
        return inputs, torch.zeros(targets, dtype=torch.int64)

    def positions(self, indices: Indices) -> Tensor | None:
        """The position of each token in its document; None unless sequences keep several documents apart."""
        if not keeps_apart(self.facts):
            return None
        return torch.zeros(len(indices), self.facts["sequence_length"], dtype=torch.int64)

    def targets(self, indices: Indices) -> int:
        """The number of targets in these examples."""
        return len(indices) * (self.facts["sequence_length"] if predicts_tokens(self.facts) else 1)
