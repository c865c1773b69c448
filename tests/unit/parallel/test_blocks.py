from torch import nn

from tests.ranks.parallel.test_apply import Net
from understudy.parallel.blocks import blocks


def test_the_blocks_are_those_that_hold_most_of_the_model() -> None:
    net = Net()
    assert blocks(net) == list(net.layers)
    assert blocks(nn.Linear(2, 2)) == []
