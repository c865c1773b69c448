"""Data and models as a recipe alone tells of them, before anything was read."""

from dataclasses import dataclass

import torch
from torch import Tensor

from understudy.data.loader import Indices
from understudy.models.describe import describe
from understudy.models.facts import AboutTexts, Description, Facts, keeps_apart
from understudy.recipe import ArchitectureModel, FactoryModel, Model, Recipe

CLASSES = 10
"""Of images whose labels nobody has counted yet; their last layer is small."""


def facts_of(recipe: Recipe) -> Facts:
    """What examples.json is going to say, as far as it decides what a model takes."""
    if recipe.task == "causal-lm":
        text = recipe.text
        facts: AboutTexts = {
            "task": "causal-lm",
            "vocab_size": text.tokenizer.vocab_size,
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


def description_of(model: Model, facts: Facts, where: str) -> Description | None:
    """What a model is; None of a pretrained one, which its files tell."""
    if isinstance(model, ArchitectureModel | FactoryModel):
        return describe(model, facts, where)
    return None


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
