"""The increment for a further block, from a few blocks, whichever of them runs at the peak."""

from collections import Counter

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from understudy.plan.ledger import Kind, Ledger, Peak
from understudy.plan.repeated import BlockIncrement, Repeated

WIDTH, ROWS = 8, 4


def increment_at_peak(within: int | None, sizes: list[int]) -> Counter[Kind]:
    """The memory of a further block, from the sizes of some blocks, of which one may run at the peak."""
    ledger, blocks = Ledger(vocabulary=7, grain=1), [nn.Linear(1, 1) for _ in sizes]
    repeated = Repeated(ledger, blocks)
    names = [ledger.block_of[block] for block in blocks]
    peak = Peak(
        bytes=sum(sizes),
        phase="forward and backward",
        kinds={"activations": sum(sizes)},
        within=None if within is None else names[within],
        blocks={name: Counter({"activations": size}) for name, size in zip(names, sizes, strict=True)},
    )
    return repeated.increment(peak, peak, None, 1).kinds


def test_a_blocks_forward_and_backward_passes_count_and_the_heads_do_not() -> None:
    ledger = Ledger(vocabulary=7, grain=1)
    with FakeTensorMode(), ledger.watching():
        blocks = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(3)])
        head = nn.Linear(WIDTH, 5 * WIDTH)
        repeated = Repeated(ledger, list(blocks))
        hidden = torch.ones(ROWS, WIDTH)
        for block in blocks:
            hidden = block(hidden)
        head(hidden).sum().backward()
    once = 2 * ROWS * WIDTH * WIDTH
    assert repeated.increment(ledger.peak(), ledger.peak(), {}, 2).flops == 2 * 3 * once


def test_a_blocks_state_is_its_weights_and_their_optimiser_state() -> None:
    ledger, blocks = Ledger(vocabulary=7, grain=1), [nn.Linear(WIDTH, WIDTH) for _ in range(3)]
    repeated = Repeated(ledger, blocks)
    momentum = {weight: {"momentum": torch.zeros_like(weight)} for block in blocks for weight in block.parameters()}
    assert repeated.increment(ledger.peak(), ledger.peak(), momentum, 1).state == 2 * 4 * (WIDTH * WIDTH + WIDTH)


@pytest.mark.parametrize(
    ("within", "sizes"),
    [
        (0, [90, 50, 20, 20]),  # the second is gathered beforehand
        (3, [20, 20, 50, 90]),
        (2, [20, 20, 90, 1]),  # the last one has been through already
        (None, [1, 20, 50, 1]),  # first and last have less, or more, than those between
    ],
)
def test_memory_that_one_block_at_a_time_has_is_not_in_the_increment(within: int | None, sizes: list[int]) -> None:
    assert increment_at_peak(within, sizes) == {"activations": 20}


def test_without_blocks_the_increment_is_empty() -> None:
    assert increment_at_peak(None, []) == {}


def test_the_increments_of_a_ranks_stages_are_summed() -> None:
    first, second = BlockIncrement(Counter(activations=3), 1, 2, 4), BlockIncrement(Counter(activations=4), 5, 6, 7)
    assert first + second == BlockIncrement(Counter(activations=7), 6, 8, 11)
