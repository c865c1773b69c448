"""Placeholder examples and model descriptions, from the recipe and model configurations; no data or weight is read."""

from dataclasses import dataclass

import torch
from torch import Tensor

from understudy.data.loader import Indices
from understudy.data.tokenizer import loaded, vocabulary_size
from understudy.models.describe import describe
from understudy.models.facts import Description, Facts, keeps_apart
from understudy.models.pretrained import Head, expected_description
from understudy.plan.expected import planned_task
from understudy.recipe import Model, PretrainedModel, Recipe


def tokens_of(recipe: Recipe) -> int:
    """The largest vocabulary that the recipe allows; for a pretrained tokenizer, the size from its files.

    Raises:
        InputError: the pretrained tokenizer does not exist.
    """
    if not recipe.takes("data.text"):
        return 0
    settings = recipe.text.tokenizer
    return vocabulary_size(loaded(settings)) if settings.pretrained else settings.vocab_size


def description_of(model: Model, facts: Facts, path: str, head: Head) -> Description:
    """A model's description; a pretrained model's configuration is read, and fetched from the hub.

    Args:
        model: the recipe's section.
        facts: of its examples.
        path: the section's path, for errors.
        head: for a pretrained model, as in fetch().

    Raises:
        InputError: the model is invalid, or its files are missing.
    """
    if isinstance(model, PretrainedModel):
        return expected_description(model, facts, path, head)
    return describe(model, facts, path)


@dataclass(frozen=True)
class PlaceholderExamples:
    """Examples without content, all zeros."""

    facts: Facts
    count: int

    def __len__(self) -> int:
        return self.count

    def batch(self, indices: Indices) -> tuple[Tensor, Tensor]:
        """Inputs and labels of these examples."""
        return planned_task(self.facts["task"]).blank(self.facts, len(indices))

    def positions(self, indices: Indices) -> Tensor | None:
        """The position of each token in its document; None unless sequences keep several documents apart."""
        if not keeps_apart(self.facts):
            return None
        return torch.zeros(len(indices), self.facts["sequence_length"], dtype=torch.int64)

    def targets(self, indices: Indices) -> int:
        """The number of targets in these examples."""
        _, labels = self.batch(indices)
        return labels.numel()
