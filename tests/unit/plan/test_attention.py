from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tests.unit.plan.test_depth import SIZES, TEXT, planned
from understudy.models.describe import describe
from understudy.plan.placeholders import PlaceholderExamples
from understudy.plan.trace import trace
from understudy.recipe import ArchitectureModel, Degrees

LENGTH, HEADS, LAYERS, SEQUENCES = 512, 4, 4, 4


def peak(groups: int, device: str, precision: torch.dtype) -> int:
    """Bytes at the peak of a training without accumulation."""
    config = {**SIZES, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": groups}
    config |= {"max_position_embeddings": LENGTH}
    facts: Any = {**TEXT, "sequence_length": LENGTH}
    model = describe(ArchitectureModel(type="llama", config=config), facts, "student.model")
    job = replace(
        planned(model, batch_size=SEQUENCES, gradient_accumulation_steps=1), examples=PlaceholderExamples(facts, 64)
    )
    return trace(job, Degrees(), 0, device, precision).peak.bytes


def test_a_gpu_keeps_the_weights_of_all_positions_in_fp32_where_heads_share_keys() -> None:
    weights = LAYERS * SEQUENCES * HEADS * LENGTH**2 * 4
    more = peak(2, "cuda", torch.float32) - peak(2, "cpu", torch.float32)
    assert weights <= more <= weights * (1 + 2 / LAYERS)  # one layer's are made again for the backward pass


@pytest.mark.parametrize(("groups", "precision"), [(HEADS, torch.float32), (2, torch.bfloat16)])
def test_it_has_a_fused_kernel_for_everything_else(groups: int, precision: torch.dtype) -> None:
    assert peak(groups, "cuda", precision) == pytest.approx(peak(groups, "cpu", precision), rel=0.02)


@pytest.mark.parametrize(("packing", "masked"), [({}, False), ({"packing": "documents"}, True)])
def test_masks_are_planned_where_a_training_has_them(
    monkeypatch: pytest.MonkeyPatch, packing: dict[str, str], masked: bool
) -> None:
    """Without one, heads that share keys are given as they are; with one, transformers repeats them."""
    calls = set()
    original = functional.scaled_dot_product_attention

    def watched(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, **kwargs: Any) -> Tensor:
        calls.add((attn_mask is not None, query.shape[1] // key.shape[1]))
        return original(query, key, value, attn_mask=attn_mask, **kwargs)

    monkeypatch.setattr(functional, "scaled_dot_product_attention", watched)
    facts: Any = {**TEXT, **packing}
    config = {**SIZES, "num_hidden_layers": 1, "num_key_value_heads": 2, "max_position_embeddings": 32}
    model = describe(ArchitectureModel(type="llama", config=config), TEXT, "student.model")
    job = replace(planned(model), examples=PlaceholderExamples(facts, 64))
    trace(job, Degrees(), 0, "cpu", torch.float32)
    assert calls == {(masked, 1 if masked else 2)}
