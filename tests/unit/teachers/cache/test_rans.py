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


def coded(steps: int, lanes: int, models: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Models, with falling numbers of values by lane, and values of all sizes."""
    rng = np.random.default_rng(seed)
    counts = np.sort(rng.integers(1, steps + 1, lanes))[::-1]
    chosen = np.where(np.arange(steps)[:, None] < counts, rng.integers(0, models, (steps, lanes)), -1)
    values = (2.0 ** (20 * rng.random((steps, lanes)))).astype(np.int64) - 1
    return chosen, values


def decoded(blob: bytes, lengths: np.ndarray, models: np.ndarray, table: rans.Frequencies) -> list[np.ndarray]:
    starts = np.append(0, np.cumsum(lengths))
    decoder = rans.Decoder(np.frombuffer(blob, np.uint8), starts, rans.packed(table))
    active = (models >= 0).sum(axis=1)
    values = [decoder.values(row[:count], count) for row, count in zip(models, active.tolist(), strict=True)]
    decoder.finish()
    return values


@given(st.integers(1, 30), st.integers(1, 8), st.integers(1, 5), st.integers(0, 2**32))
def test_decoded_values_are_those_that_were_encoded(steps: int, lanes: int, models: int, seed: int) -> None:
    table = frequencies(models, seed)
    chosen, values = coded(steps, lanes, models, seed)
    blob, lengths = rans.encode(rans.Symbols(chosen, values), table)
    assert len(blob) == lengths.sum()
    for row, expected in zip(decoded(blob, lengths, chosen, table), values, strict=True):
        assert np.array_equal(row, expected[: len(row)])


def test_a_lane_takes_hardly_more_than_its_entropy() -> None:
    table = frequencies(1, 1)
    rng = np.random.default_rng(0)
    probabilities = table[0] / rans.TOTAL
    values = integers.FIRST[rng.choice(integers.SYMBOLS, (200, 64), p=probabilities)].astype(np.int64)
    values += rng.integers(0, 1 << integers.BITS[integers.split(values)[0]].astype(np.int64))
    _, lengths = rans.encode(rans.Symbols(np.zeros_like(values), values), table)
    symbols = integers.split(values)[0]
    bits = -np.log2(probabilities[symbols]) + integers.BITS[symbols]
    assert (lengths - bits.sum(axis=0) / 8).max() < 1.6
    assert (lengths - bits.sum(axis=0) / 8).mean() < 0.8


def test_a_symbol_without_a_frequency_is_refused() -> None:
    table = frequencies(1, 0)
    table[0, 1] += table[0, 5]
    table[0, 5] = 0
    with pytest.raises(UnderstudyError, match="outside of the tables"):
        rans.encode(rans.Symbols(np.zeros((1, 1), np.int64), np.array([[5]])), table)


@given(st.binary(min_size=1, max_size=60), st.integers(0, 100))
def test_other_bytes_end_in_an_error(data: bytes, seed: int) -> None:
    """A state that does not arrive at 1, or words that are left, by chance at most once in 2^16."""
    table = frequencies(2, seed)
    models = np.zeros((8, 1), np.int64)
    try:
        decoded(data, np.array([len(data)]), models, table)
    except UnderstudyError:
        return
    values = np.stack(decoded(data, np.array([len(data)]), models, table)).astype(np.int64)
    assert rans.encode(rans.Symbols(models, values), table)[0] == data
