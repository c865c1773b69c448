"""What a further block adds: told from a few blocks, whichever of them is at work at the peak."""

from collections import Counter

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from understudy.plan.ledger import Kind, Ledger, Peak
from understudy.plan.repeated import BlockIncrement, Repeated

WIDTH, ROWS = 8, 4


def at_work(within: int | None, held: list[int]) -> Counter[Kind]:
    """What a further block would hold, when each of some blocks holds so much and one is at work."""
    ledger, blocks = Ledger(vocabulary=7, grain=1), [nn.Linear(1, 1) for _ in held]
    repeated = Repeated(ledger, blocks)
    names = [ledger.block_of[block] for block in blocks]
    peak = Peak(
        bytes=sum(held),
        phase="forward and backward",
        kinds={"activations": sum(held)},
        within=None if within is None else names[within],
        blocks={name: Counter({"activations": size}) for name, size in zip(names, held, strict=True)},
    )
    return repeated.increment(peak, peak, None, 1).kinds


def test_a_block_computes_in_both_directions_and_what_is_beside_it_does_not_count() -> None:
    ledger = Ledger(vocabulary=7, grain=1)
    with FakeTensorMode(), ledger.watching():
        blocks = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(3)])
        head = nn.Linear(WIDTH, 5 * WIDTH)
        repeated = Repeated(ledger, list(blocks))
        shown = torch.ones(ROWS, WIDTH)
        for block in blocks:
            shown = block(shown)
        head(shown).sum().backward()
    once = 2 * ROWS * WIDTH * WIDTH
    assert repeated.increment(ledger.peak(), ledger.peak(), {}, 2).flops == 2 * 3 * once


def test_a_blocks_state_is_its_weights_and_what_the_optimiser_made_for_them() -> None:
    ledger, blocks = Ledger(vocabulary=7, grain=1), [nn.Linear(WIDTH, WIDTH) for _ in range(3)]
    repeated = Repeated(ledger, blocks)
    momentum = {weight: {"momentum": torch.zeros_like(weight)} for block in blocks for weight in block.parameters()}
    assert repeated.increment(ledger.peak(), ledger.peak(), momentum, 1).state == 2 * 4 * (WIDTH * WIDTH + WIDTH)


@pytest.mark.parametrize(
    ("within", "held"),
    [
        (0, [90, 50, 20, 20]),  # the second is gathered beforehand
        (3, [20, 20, 50, 90]),
        (2, [20, 20, 90, 1]),  # the last one has been through already
        (None, [1, 20, 50, 1]),  # first and last have less, or more, than those between
    ],
)
def test_what_one_block_at_a_time_has_is_not_what_a_further_one_adds(within: int | None, held: list[int]) -> None:
    assert at_work(within, held) == {"activations": 20}


def test_without_blocks_nothing_is_added() -> None:
    assert at_work(None, []) == {}


def test_what_several_stages_of_a_rank_add_is_summed() -> None:
    first, second = BlockIncrement(Counter(activations=3), 1, 2, 4), BlockIncrement(Counter(activations=4), 5, 6, 7)
    assert first + second == BlockIncrement(Counter(activations=7), 6, 8, 11)
