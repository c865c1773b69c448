"""Lanes of bytes by rANS."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.errors import UnderstudyError
from understudy.teachers.cache import integers, rans


def frequencies(models: int, seed: int) -> rans.Frequencies:
    """Random rows of the right sum, from even to extreme."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(models):
        shares = rng.dirichlet(np.full(integers.SYMBOLS, rng.choice([0.01, 1.0, 100.0])))
        row = np.floor(shares * (rans.TOTAL - integers.SYMBOLS)).astype(np.int64) + 1
        row[rng.integers(len(row))] += rans.TOTAL - row.sum()
        rows.append(row)
    return np.array(rows)


def coded(rows: int, lanes: int, models: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Models, with falling numbers of values by lane, values of all sizes, and joined rows."""
    rng = np.random.default_rng(seed)
    counts = np.sort(2 * rng.integers(1, rows + 1, lanes))[::-1]
    shape = (2 * rows, lanes)
    chosen = np.where(np.arange(2 * rows)[:, None] < counts, rng.integers(0, models, shape), -1)
    values = (2.0 ** (rng.choice([3, 20], shape) * rng.random(shape))).astype(np.int64) - 1
    joined = (np.arange(2 * rows) % 2 == 0) & (rng.random(2 * rows) < 0.7)
    return chosen, values, joined


def decoded(
    blob: bytes, lengths: np.ndarray, models: np.ndarray, joined: np.ndarray, table: rans.Frequencies
) -> list[np.ndarray]:
    starts = np.append(0, np.cumsum(lengths))
    decoder = rans.Decoder(np.frombuffer(blob, np.uint8), starts, rans.packed(table))
    values = []
    for row, is_joined in zip(models, joined, strict=True):
        active = row[row >= 0]
        values.append(decoder.joined_values(active) if is_joined else decoder.values(active)[0])
    decoder.finish()
    return values


@given(st.integers(1, 30), st.integers(1, 8), st.integers(1, 5), st.integers(0, 2**32))
def test_decoded_values_are_those_that_were_encoded(rows: int, lanes: int, models: int, seed: int) -> None:
    table = frequencies(models, seed)
    chosen, values, joined = coded(rows, lanes, models, seed)
    blob, lengths = rans.encode(rans.Symbols(chosen, values, joined), table)
    assert len(blob) == lengths.sum()
    for row, expected in zip(decoded(blob, lengths, chosen, joined, table), values, strict=True):
        assert np.array_equal(row, expected[: len(row)])


def test_a_lane_takes_hardly_more_than_its_entropy() -> None:
    table = frequencies(1, 1)
    rng = np.random.default_rng(0)
    probabilities = table[0] / rans.TOTAL
    values = integers.FIRST[rng.choice(integers.SYMBOLS, (200, 64), p=probabilities)]
    values += rng.integers(0, 1 << integers.BITS[integers.split(values)[0]])
    _, lengths = rans.encode(rans.Symbols(np.zeros_like(values), values, np.arange(200) % 2 == 0), table)
    symbols = integers.split(values)[0]
    bits = -np.log2(probabilities[symbols]) + integers.BITS[symbols]
    assert (lengths - bits.sum(axis=0) / 8).max() < 1.6
    assert (lengths - bits.sum(axis=0) / 8).mean() < 0.8


def test_a_symbol_without_a_frequency_is_refused() -> None:
    table = frequencies(1, 0)
    table[0, 1] += table[0, 5]
    table[0, 5] = 0
    with pytest.raises(UnderstudyError, match="outside of the tables"):
        rans.encode(rans.Symbols(np.zeros((1, 1), np.int64), np.array([[5]]), np.zeros(1, np.bool_)), table)


@given(st.binary(min_size=1, max_size=60), st.integers(0, 100))
def test_other_bytes_end_in_an_error(data: bytes, seed: int) -> None:
    """Or they are what the encoder writes."""
    table = frequencies(2, seed)
    models, joined = np.zeros((8, 1), np.int64), np.arange(8) % 2 == 0
    try:
        values = np.stack(decoded(data, np.array([len(data)]), models, joined, table))
    except UnderstudyError:
        return
    assert rans.encode(rans.Symbols(models, values, joined), table)[0] == data
