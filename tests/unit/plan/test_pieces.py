"""A loss in many pieces, of which three are traced."""

from contextlib import nullcontext
from typing import Any

import pytest
import torch

from tests.unit.plan.test_depth import llama, planned
from understudy.plan.trace import traces
from understudy.recipe import Degrees


@pytest.mark.parametrize(
    "mesh_degrees", [Degrees(), pytest.param(Degrees(dp_shard=2, tp=2), marks=pytest.mark.full), Degrees(pp=2)]
)
def test_pieces_that_are_left_out_count_all_the_same(monkeypatch: pytest.MonkeyPatch, mesh_degrees: Degrees) -> None:
    """11 pieces of each part of 128 positions, the last one shorter."""
    monkeypatch.setattr("understudy.models.outputs.LOGITS_AT_A_TIME", 300 * 12)
    job = planned(llama(2), llama(3))
    three_pieces = traces(job, mesh_degrees, "cpu", torch.float32)
    calls: list[Any] = []
    with monkeypatch.context() as patch:
        patch.setattr("understudy.plan.trace.few_pieces", lambda *args: calls.append(args) or nullcontext())
        all_of_them = traces(job, mesh_degrees, "cpu", torch.float32)
    assert calls
    for estimate, expected in zip(three_pieces, all_of_them, strict=True):
        assert (estimate.flops, estimate.traffic, estimate.resident) == (
            expected.flops,
            expected.traffic,
            expected.resident,
        )
        assert estimate.peak == expected.peak
