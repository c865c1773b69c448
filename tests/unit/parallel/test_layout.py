"""How a model's layers follow one another, and where it is cut."""

from itertools import combinations, pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from understudy.errors import InputError
from understudy.parallel.layout import Layout, OutputSpec, boundaries, layout, stage_costs


class Chain(nn.Module):
    """An embedding, blocks, a head."""

    def __init__(self, widths: tuple[int, ...] = (1, 1, 1)) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.blocks = nn.ModuleList(nn.Sequential(*(nn.Linear(4, 4) for _ in range(width))) for width in widths)
        self.head = nn.Linear(4, 5)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.embed(tokens)
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(hidden)


class Skipping(Chain):
    """Its last block takes the first one's output, too."""

    def forward(self, tokens: Tensor) -> Tensor:
        first = self.blocks[0](self.embed(tokens))
        return self.head(self.blocks[2](self.blocks[1](first) + first))


class Between(Chain):
    """Its head also runs between blocks."""

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.blocks[0](self.embed(tokens))
        self.head(hidden)
        return self.head(self.blocks[2](self.blocks[1](hidden)))


class Loose(Chain):
    """It has a parameter in no module of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))


class Pair(nn.Embedding):
    """It returns a tuple."""

    def forward(self, tokens: Tensor) -> tuple[Tensor, int]:
        return super().forward(tokens), 3


class Paired(Chain):
    """Its embedding returns a tuple."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = Pair(7, 4)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden, _ = self.embed(tokens)
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(hidden)


TOKENS = torch.zeros(2, 3, dtype=torch.long)


def test_a_model_is_read_in_the_order_in_which_it_runs() -> None:
    model_layout = layout(Chain((1, 3, 1)), TOKENS, "student.train")
    assert model_layout.blocks == ("blocks.0", "blocks.1", "blocks.2")
    assert model_layout.before == {"embed": OutputSpec((2, 3, 4), torch.float32)}
    assert model_layout.after == {"head": OutputSpec((2, 3, 5), torch.float32)}
    assert model_layout.hidden.shape == (2, 3, 4)
    assert model_layout.costs == (192, 576, 192)
    assert (model_layout.first, model_layout.last) == (0, 240)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (Skipping(), "needs a chain of blocks"),
        (Between(), "to which stage head belongs"),
        (Loose(), "to which stage the parameters of Loose belong"),
        (Paired(), "to return a tensor, and embed returns a tuple"),
        (nn.Embedding(7, 4), "it has none"),
    ],
)
def test_what_is_no_chain_is_refused(model: nn.Module, reason: str) -> None:
    with pytest.raises(InputError, match=rf"student\.train\.strategy: pp .*{reason}"):
        layout(model, TOKENS, "student.train")


def chain_of(costs: list[int], first: int, last: int) -> Layout:
    names = tuple(f"blocks.{number}" for number in range(len(costs)))
    return Layout(names, {}, {}, OutputSpec((2, 4), torch.float32), tuple(costs), first, last)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=9), st.integers(0, 20), st.integers(0, 20), st.data())
def test_the_slowest_stage_is_as_fast_as_can_be(costs: list[int], first: int, last: int, data: st.DataObject) -> None:
    """Against all cuts that there are."""
    stages = data.draw(st.integers(1, len(costs)))
    chain = chain_of(costs, first, last)
    parts = boundaries(chain, stages, "train")
    assert [block for part in parts for block in part] == list(range(len(costs)))
    assert all(len(part) > 0 for part in parts)
    cuts = (
        [range(start, end) for start, end in pairwise((0, *inner, len(costs)))]
        for inner in combinations(range(1, len(costs)), stages - 1)
    )
    assert max(stage_costs(chain, parts)) == min(max(stage_costs(chain, division)) for division in cuts)


def test_more_stages_than_blocks_are_refused() -> None:
    with pytest.raises(
        InputError, match=r"student\.train\.strategy: the model has 2 blocks, too few for 3 pipeline stages"
    ):
        boundaries(chain_of([1, 1], 0, 0), 3, "student.train")
