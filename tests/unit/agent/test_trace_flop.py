"""The FLOP of a trace are those that torch's own counter finds while the same is computed."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from understudy.agent.trace_flop import flop_of


def attention() -> Tensor:
    queries, keys, values = (torch.randn(2, 4, size, 16, requires_grad=True) for size in (8, 12, 12))
    return scaled_dot_product_attention(queries, keys, values).sum()


def layers() -> Tensor:
    net = nn.Sequential(nn.Linear(24, 40), nn.GELU(), nn.Linear(40, 8, bias=False))
    return net(torch.randn(5, 3, 24)).sum() + torch.bmm(torch.randn(3, 4, 5), torch.randn(3, 5, 6)).sum()


def convolutions() -> Tensor:
    net = nn.Sequential(nn.Conv2d(3, 8, (4, 2), stride=2, padding=1), nn.Conv2d(8, 6, 3, dilation=2))
    return net(torch.randn(2, 3, 16, 16, requires_grad=True)).sum()


def transposed() -> Tensor:
    return nn.ConvTranspose2d(3, 8, 4, stride=2, bias=False)(torch.randn(2, 3, 9, 9)).sum()


@pytest.mark.parametrize("compute", [attention, layers, convolutions, transposed])
def test_flop_are_those_of_torch(tmp_path: Path, compute: Callable[[], Tensor]) -> None:
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        compute().backward()
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    with FlopCounterMode(display=False) as counter:
        compute().backward()
    assert counter.get_total_flops() > 0
    assert flop_of(json.loads((tmp_path / "trace.json").read_text())["traceEvents"]) == counter.get_total_flops()


def test_of_an_operator_that_calls_itself_for_a_part_the_part_counts() -> None:
    """As on tensors over ranks."""
    outer = {"ph": "X", "name": "aten::mm", "tid": 1, "ts": 0, "dur": 9, "args": {"Input Dims": [[8, 4], [4, 2]]}}
    part = {**outer, "ts": 2, "dur": 3, "args": {"Input Dims": [[4, 4], [4, 2]]}}
    elsewhere = {**part, "tid": 2}
    assert flop_of([outer, part]) == 2 * 4 * 4 * 2
    assert flop_of([outer, part, {**part, "ts": 6}]) == 2 * 2 * 4 * 4 * 2
    assert flop_of([outer, elsewhere]) == 2 * 8 * 4 * 2 + 2 * 4 * 4 * 2


def test_a_product_in_eight_bits_counts_as_any_other() -> None:
    """On a CPU it calls another operator, and on a GPU none."""
    values = {"Input Dims": [[8, 16], [16, 4], [], []]}
    event = {"ph": "X", "name": "aten::_scaled_mm", "tid": 1, "ts": 0, "dur": 9, "args": values}
    assert flop_of([event]) == 2 * 8 * 16 * 4
