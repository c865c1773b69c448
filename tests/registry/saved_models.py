"""Small real models in the store's format, for tests that load and ask them."""

from pathlib import Path
from typing import Any

from tests.unit.models.sections import section
from understudy.models.build import build_model, tied_weights
from understudy.models.describe import describe
from understudy.models.files import save_model

SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
VIT = {"type": "vit", "config": {**SMALL, "patch_size": 4}}


def describe_images() -> dict[str, Any]:
    return {
        "task": "image-classification",
        "labels": ["ant", "bee", "cat"],
        "image": {"size": 8, "channels": 1},
        "mean": [0.3],
        "std": [0.2],
    }


def save(folder: Path, spec: dict[str, Any], examples: dict[str, Any], tokenizer: Path | None = None) -> Path:
    folder.mkdir()
    description = describe(section(spec), examples, "student.model")
    net = build_model(description)
    state = {name: value for name, value in net.state_dict().items() if name not in tied_weights(net)}
    save_model(folder, state, description, tokenizer)
    return folder
