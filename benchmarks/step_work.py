"""The work of all loops of steps.py: a Llama, its weights, and the windows of tokens in one order."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from understudy.data.loader import Order, TextExamples
from understudy.models.build import uninitialized_model
from understudy.models.describe import describe
from understudy.models.facts import Facts
from understudy.models.files import save_model
from understudy.models.parts import local_tensor
from understudy.recipe import ArchitectureModel

RANKS, RATE, SEED, LOG_EVERY = 2, 1e-3, 0, 10
VOCABULARY, LENGTH, BATCH, WINDOWS = 4096, 128, 8, 256
LLAMA = ArchitectureModel.model_validate(
    {
        "type": "llama",
        "config": {
            "hidden_size": 256,
            "intermediate_size": 704,
            "num_hidden_layers": 2,
            "num_attention_heads": 8,
            "num_key_value_heads": 8,
            "max_position_embeddings": LENGTH,
        },
    }
)


@dataclass
class Work:
    """The work of every loop."""

    folder: Path
    strategy: str
    """ddp or fsdp."""
    steps: int
    losses: dict[str, list[Tensor]] = field(default_factory=dict)
    """Of each step, this rank's mean loss over its own targets, by loop."""
    models: dict[str, nn.Module] = field(default_factory=dict)
    """The model that each loop trains."""

    def taught(self, name: str) -> "Taught":
        """The model that a loop trains."""
        self.losses[name] = []
        self.models[name] = taught = Taught(self.folder / "model", self.losses[name])
        return taught

    def check_shards(self) -> None:
        """Whether the loops have spread their models as they should."""
        unsharded = Taught(self.folder / "model", [])
        for name, model in self.models.items():
            share = size(model) / size(unsharded)
            assert (share < 0.6) == (self.strategy == "fsdp"), f"under {self.strategy} {name} holds {share:.2f} of it"

    def rows(self) -> "Rows":
        """The windows of all steps."""
        return Rows(self.folder, self.steps)


def size(model: nn.Module) -> int:
    """Numbers that this rank holds of a model."""
    return sum(local_tensor(parameter).numel() for parameter in model.parameters())


class Taught(nn.Module):
    """A language model that answers with its loss, and notes it."""

    def __init__(self, folder: Path, losses: list[Tensor]) -> None:
        super().__init__()
        from transformers import AutoModelForCausalLM

        self.net: nn.Module = AutoModelForCausalLM.from_pretrained(folder)
        self._losses = losses

    def forward(self, inputs: Tensor, labels: Tensor) -> Tensor:
        logits = self.net(input_ids=inputs, use_cache=False).logits
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        self._losses.append(loss.detach())
        return loss

    @property
    def blocks(self) -> list[nn.Module]:
        """Its repeated layers."""
        return list(self.net.get_submodule("model.layers").children())


class Rows(torch.utils.data.Dataset[dict[str, Tensor]]):
    """The windows in the order in which our loop reads them, each as often as it does."""

    def __init__(self, folder: Path, steps: int) -> None:
        self._examples = TextExamples(folder, "train", LENGTH, 0)
        order = Order(len(self._examples), BATCH, SEED)
        self._indices = np.concatenate([order.batch(step) for step in range(steps)])

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        inputs, labels = self._examples.batch(self._indices[index : index + 1])
        return {"inputs": inputs[0], "labels": labels[0]}

    def batches(self, rank: int) -> Iterator[tuple[Tensor, Tensor]]:
        """A rank's part of each step's windows."""
        width = BATCH // RANKS
        for first in range(rank * width, len(self), BATCH):
            yield self._examples.batch(self._indices[first : first + width])


def write_work(folder: Path) -> None:
    """Random tokens, and a model with random weights."""
    tokens = np.random.default_rng(0).integers(0, VOCABULARY, WINDOWS * LENGTH + 1)
    np.save(folder / "train.tokens.npy", tokens.astype(np.int32))
    facts: Facts = {"task": "causal-lm", "vocab_size": VOCABULARY, "eos_id": 0, "sequence_length": LENGTH}
    (folder / "examples.json").write_text(json.dumps(facts))
    description = describe(LLAMA, facts, "teacher.model")
    shapes = {
        name: tensor.shape for name, tensor in uninitialized_model(description, "teacher.model").state_dict().items()
    }
    torch.manual_seed(0)
    ones = {name: torch.ones(shape) for name, shape in shapes.items() if len(shape) == 1}
    weights = {name: torch.randn(shape) / 50 for name, shape in shapes.items()} | ones
    (folder / "model").mkdir()
    save_model(folder / "model", weights, description)
