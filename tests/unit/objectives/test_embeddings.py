"""A vector for each example: means over its own positions, of texts, sequences, patches and pixels."""

import numpy as np
import pytest
import torch
from torch import Size, Tensor

from understudy.data.loader import IGNORED
from understudy.errors import InputError
from understudy.models.outputs import OutputShapes
from understudy.objectives.batch import Batch
from understudy.objectives.embeddings import counted_positions, embeddings, targets_by_example, width_of

LABELS = torch.tensor([1, 0, 2])
SEQUENCES = torch.tensor([[1, 2, IGNORED, 3], [IGNORED] * 4, [0, 1, 2, 3]])


def batch(labels: Tensor) -> Batch:
    return Batch(labels, labels)


def test_an_image_s_patches_are_averaged() -> None:
    state = torch.randn(3, 4, 5, dtype=torch.double)
    np.testing.assert_allclose(embeddings(state, None, batch(LABELS)), state.numpy().mean(1), rtol=1e-12)


def test_a_convolution_s_pixels_are_averaged() -> None:
    state = torch.randn(3, 5, 2, 4, dtype=torch.double)
    np.testing.assert_allclose(embeddings(state, None, batch(LABELS)), state.numpy().mean((2, 3)), rtol=1e-12)


def test_padding_of_a_text_does_not_count() -> None:
    state, mask = torch.randn(3, 4, 5), torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 1, 1]])
    expected = torch.stack([state[row, :count].mean(0) for row, count in enumerate((3, 1, 4))])
    torch.testing.assert_close(embeddings(state, mask, batch(LABELS)), expected)


@pytest.mark.parametrize("mask", [None, torch.ones(3, 4)])
def test_a_sequence_s_positions_without_a_target_do_not_count(mask: Tensor | None) -> None:
    state = torch.randn(3, 4, 5)
    expected = torch.stack([state[0, [0, 1, 3]].mean(0), torch.zeros(5), state[2].mean(0)])
    torch.testing.assert_close(embeddings(state, mask, batch(SEQUENCES)), expected)


def test_an_example_without_a_label_has_no_position() -> None:
    labels = torch.tensor([1, IGNORED, 2])
    assert counted_positions(torch.zeros(3, 4, 5), None, batch(labels)).sum(1).tolist() == [4, 0, 4]


def test_half_precision_is_averaged_in_full() -> None:
    assert embeddings(torch.ones(3, 4, 5, dtype=torch.bfloat16), None, batch(LABELS)).dtype is torch.float32


def test_targets_are_counted_by_example() -> None:
    assert targets_by_example(batch(SEQUENCES)).tolist() == [3, 0, 4]
    assert targets_by_example(batch(torch.tensor([1, IGNORED]))).tolist() == [1, 0]


def test_the_width_is_that_of_the_last_dimension_or_of_the_channels() -> None:
    shapes = OutputShapes((Size((4, 5)), Size((6, 2, 2)), Size((5,))))
    assert [width_of(shapes, layer, "student", "here") for layer in (0, 1)] == [5, 6]
    with pytest.raises(InputError, match=r"^here: a hidden state of the student has the shape \(5,\), and neither"):
        width_of(shapes, -1, "student", "here")
