"""Layers of a teacher for those of a model of another depth."""

from collections.abc import Sequence
from fractions import Fraction
from math import ceil
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.errors import InputError
from understudy.models.layers import chosen_layers, uniform_layers

DEPTHS = st.integers(1, 96)


@given(DEPTHS, DEPTHS)
def test_uniform_layers_are_at_the_same_share_of_the_depth(n_layers: int, n_teacher_layers: int) -> None:
    expected = tuple(ceil(Fraction(layer, n_layers) * n_teacher_layers) for layer in range(1, n_layers + 1))
    assert uniform_layers(n_layers, n_teacher_layers) == expected
    assert list(expected) == sorted(expected)
    assert (expected[0] >= 1, expected[-1]) == (True, n_teacher_layers)


def test_half_as_many_layers_are_every_second_one() -> None:
    """As in DistilBERT."""
    assert chosen_layers("uniform", 6, 12, "w", "bert") == (2, 4, 6, 8, 10, 12)
    assert chosen_layers("uniform", 4, 2, "w", "bert") == (1, 1, 2, 2)


@given(DEPTHS, DEPTHS)
def test_the_last_layers_are_as_many_as_the_models(n_layers: int, n_teacher_layers: int) -> None:
    if n_layers <= n_teacher_layers:
        assert (
            chosen_layers("last", n_layers, n_teacher_layers, "w", "t")
            == tuple(range(1, n_teacher_layers + 1))[-n_layers:]
        )


def test_named_layers_are_taken_as_they_are() -> None:
    assert chosen_layers((4, 1, 4), 3, 4, "w", "t") == (4, 1, 4)


@pytest.mark.parametrize(
    ("layers", "n_layers", "message"),
    [
        ((1, 7), 2, "w: there is no layer 7 in deep, which has 4; name 1 to 4"),
        ((1, 2), 3, "w: names 2 layers, and the model has 3; name a layer of deep for each"),
        ("last", 5, "w: the model has 5 layers, and deep 4; use uniform, or name a layer of deep for each"),
    ],
)
def test_layers_that_there_are_not_are_refused(
    layers: Literal["uniform", "last"] | Sequence[int], n_layers: int, message: str
) -> None:
    with pytest.raises(InputError) as caught:
        chosen_layers(layers, n_layers, 4, "w", "deep")
    assert str(caught.value) == message
