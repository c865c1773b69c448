"""Examples and models that are measured in a moment."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.unit.models.sections import section
from understudy.models.build import build_model, tied_weights
from understudy.models.describe import describe
from understudy.models.files import save_model

COUNTS = {"counts": {"train": 1, "validation": 0, "test": 8}, "skipped": 0}
TEXT: dict[str, Any] = {**COUNTS, "task": "causal-lm", "vocab_size": 9, "eos_id": 0, "sequence_length": 6}
IMAGES: dict[str, Any] = {
    **COUNTS,
    "task": "image-classification",
    "labels": ["cat", "dog", "hen"],
    "image": {"size": 8, "channels": 1},
    "mean": [0.5],
    "std": [0.2],
}
SIZES = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
LLAMA = {"type": "llama", "config": SIZES}
VIT = {"type": "vit", "config": {**SIZES, "patch_size": 4}}
SOURCES = {"causal-lm": "python-docs", "image-classification": "digits"}


def recipe(facts: dict[str, Any], model: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A recipe of models of one kind, whose measuring takes some batches."""
    shape = {"text": {"sequence_length": 6}} if facts is TEXT else {"image": facts["image"]}
    return {
        "name": "here",
        "task": facts["task"],
        "data": {"source": {"type": SOURCES[facts["task"]]}, **shape},
        "teacher": {"model": model, "train": {"steps": 1}},
        "student": {"model": model, "train": {"steps": 1}},
        "evaluate": {"batch_size": 3, "latency": {"repeats": 1}},
        "resources": {"distill": {"threads": 1, "device": "cpu"}},
        **changes,
    }


def examples(folder: Path, facts: dict[str, Any]) -> Path:
    """A folder of examples: 8 documents of 75 tokens in 17 windows, or 13 images."""
    folder.mkdir(parents=True)
    (folder / "examples.json").write_text(json.dumps(facts))
    generator = np.random.default_rng(0)
    if facts is IMAGES:
        np.save(folder / "test.images.npy", generator.integers(0, 255, (13, 1, 8, 8), dtype=np.uint8))
        np.save(folder / "test.labels.npy", np.arange(13) % 3)
        np.save(folder / "train.labels.npy", np.array([0, 1, 1, 2]))
        return folder
    texts = [[*generator.integers(1, 9, length), 0] for length in (0, 3, 6, 11, 25, 8, 2, 4)]
    np.save(folder / "test.tokens.npy", np.concatenate(texts).astype(np.uint16))
    np.save(folder / "test.offsets.npy", np.cumsum([0, *map(len, texts)]))
    np.save(folder / "train.tokens.npy", np.array([1, 1, 2, 0], dtype=np.uint16))
    np.save(folder / "test.bytes.npy", np.array([4 * (len(text) - 1) for text in texts]))
    return folder


def saved(folder: Path, model: dict[str, Any], facts: Any, seed: int) -> Path:
    """A saved model with random weights."""
    folder.mkdir(parents=True)
    description = describe(section(model), facts, "teacher.model")
    torch.manual_seed(seed)
    built = build_model(description)
    weights = {name: tensor for name, tensor in built.state_dict().items() if name not in tied_weights(built)}
    save_model(folder, weights, description)
    return folder
