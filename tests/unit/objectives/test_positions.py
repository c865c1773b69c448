"""The mean over positions without padding."""

import pytest
import torch

from understudy.objectives.positions import example_means

MASK = torch.tensor([[1, 1, 0], [0, 0, 0], [1, 1, 1]])


@pytest.mark.parametrize("shape", [(3, 3), (3, 3, 4)])
def test_padding_does_not_count_and_an_example_of_padding_alone_is_0(shape: tuple[int, ...]) -> None:
    values = torch.rand(shape, dtype=torch.double)
    expected = torch.stack([values[0, :2].mean(), torch.zeros((), dtype=torch.double), values[2].mean()])
    torch.testing.assert_close(example_means(values, MASK), expected)
    values[1] = torch.nan  # such as a direction of a state that is 0
    assert example_means(values, MASK)[1] == 0


def test_without_a_mask_all_positions_count() -> None:
    values = torch.rand(2, 3, 4, dtype=torch.double)
    torch.testing.assert_close(example_means(values, None), values.mean((1, 2)))
