"""Bytes of weights, beside those of real models and of their files."""

from pathlib import Path
from typing import Any

import pytest

from tests.ranks.train.jobs import BERT, GPT, LLAMA, VIT
from tests.unit.plan.test_choices import IMAGES
from understudy.models.build import build_model, tied_weights
from understudy.models.describe import describe
from understudy.models.facts import WEIGHTS, Facts
from understudy.models.files import save_model
from understudy.plan.weights import weights_of
from understudy.recipe import ArchitectureModel

TEXT: Facts = {"task": "causal-lm", "vocab_size": 300, "eos_id": 0, "sequence_length": 16}
RESNET = {"type": "resnet", "config": {"embedding_size": 8, "hidden_sizes": [8, 8], "depths": [1, 1]}}
IN_HALF = {"type": "llama", "config": {**LLAMA["config"], "dtype": "bfloat16"}}


@pytest.mark.parametrize(
    ("model", "facts"),
    [(LLAMA, TEXT), (GPT, TEXT), (BERT, TEXT), (VIT, IMAGES), (RESNET, IMAGES), (IN_HALF, TEXT)],
)
def test_weights_are_those_of_real_models_and_files(tmp_path: Path, model: dict[str, Any], facts: Facts) -> None:
    """GPT-2's last layer is tied to its embedding, and a ResNet has running means in its files."""
    description = describe(ArchitectureModel.model_validate(model), facts, "student.model")
    real = build_model(description)
    estimated = weights_of(description, "student.model")
    assert estimated.parameters == sum(parameter.nbytes for parameter in real.parameters())
    assert estimated.served == 4 * sum(parameter.numel() for parameter in real.parameters())
    aliases = tied_weights(real)
    save_model(
        tmp_path, {name: tensor for name, tensor in real.state_dict().items() if name not in aliases}, description
    )
    stored = (tmp_path / WEIGHTS).read_bytes()
    assert estimated.files == len(stored) - 8 - int.from_bytes(stored[:8], "little")  # the header, and its length
