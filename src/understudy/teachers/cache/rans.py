"""Entropy coding of lanes: independent streams of bytes, coded side by side, one numpy operation for all of them.

It is range asymmetric numeral systems (rANS; Duda 2013) with static frequencies, a 32-bit state per lane and 16-bit
renormalisation. A lane's state begins at 1 instead of 2^16, which saves two bytes a lane: the decoder stops to read
where the lane's words end, and must arrive at 1.
"""

import numpy as np
from numpy.typing import NDArray

from understudy.errors import UnderstudyError
from understudy.teachers.cache import integers

PRECISION = 12
TOTAL = 1 << PRECISION
"""The sum of the frequencies of a model."""
LOW = 1 << 16
"""States are at least this after the first word was written."""

Frequencies = NDArray[np.int64]
"""(models, symbols), each row summing to TOTAL."""


class Symbols:
    """What is to be coded: arrays of one shape (steps, lanes), in the order of decoding.

    Args:
        models: the row of the frequencies for each value; -1 where a lane has no value in that step.
        values: integers in [0, integers.LIMIT).
    """

    def __init__(self, models: NDArray[np.int64], values: NDArray[np.int64]) -> None:
        self.models = models
        self.symbols, self.bits, self.raw = integers.split(np.maximum(values, 0))


def encode(coded: Symbols, frequencies: Frequencies) -> tuple[bytes, NDArray[np.int64]]:
    """The lanes' bytes end to end, and the length of each.

    Raises:
        UnderstudyError: a symbol has the frequency 0.
    """
    steps, lanes = coded.models.shape
    starts = np.cumsum(frequencies, axis=1) - frequencies
    models = np.maximum(coded.models, 0)
    all_frequencies, all_starts = frequencies[models, coded.symbols], starts[models, coded.symbols]
    if bool(((all_frequencies == 0) & (coded.models >= 0)).any()):
        raise UnderstudyError("cached logits: a value is outside of the tables' range. Fit the tables again.")
    state = np.ones(lanes, np.int64)
    words, counts = np.zeros((lanes, 2 * steps), np.uint16), np.zeros(lanes, np.int64)
    for step in reversed(range(steps)):
        active = np.flatnonzero(coded.models[step] >= 0)
        bits, raw = coded.bits[step, active].astype(np.int64), coded.raw[step, active]
        state[active] = _shrunk(state, active, (1 << 32) >> bits, words, counts) << bits | raw
        frequency = all_frequencies[step, active]
        quotient, rest = np.divmod(_shrunk(state, active, frequency << (32 - PRECISION), words, counts), frequency)
        state[active] = (quotient << PRECISION) + rest + all_starts[step, active]
    return _joined(state, words, counts)


def _shrunk(
    state: NDArray[np.int64],
    active: NDArray[np.int64],
    limits: NDArray[np.int64],
    words: NDArray[np.uint16],
    counts: NDArray[np.int64],
) -> NDArray[np.int64]:
    """The states of the active lanes, each below its limit; the low word of those that were not is written."""
    states = state[active]
    is_large = states >= limits
    large = active[is_large]
    words[large, counts[large]] = states[is_large] & 0xFFFF
    counts[large] += 1
    states[is_large] >>= 16
    return states


def _joined(
    state: NDArray[np.int64], words: NDArray[np.uint16], counts: NDArray[np.int64]
) -> tuple[bytes, NDArray[np.int64]]:
    """For each lane its state, in as few bytes as it has, and its words, the last one first; all little-endian."""
    widths = sum((state >= 1 << bits).astype(np.int64) for bits in (0, 8, 16, 24))
    lengths = widths + 2 * counts
    output = np.zeros(int(lengths.sum()), np.uint8)
    starts = np.cumsum(lengths) - lengths
    for byte in range(4):
        used = widths > byte
        output[starts[used] + byte] = state[used] >> 8 * byte & 0xFF
    lanes = np.repeat(np.arange(len(counts)), counts)
    within = np.arange(len(lanes)) - np.repeat(np.cumsum(counts) - counts, counts)
    at = np.repeat(starts + widths, counts) + 2 * within
    ordered = words[lanes, np.repeat(counts, counts) - 1 - within]
    output[at], output[at + 1] = ordered & 0xFF, ordered >> 8
    return output.tobytes(), lengths


class Decoder:
    """Decodes lanes step by step.

    Args:
        blob: bytes, uint8.
        starts: (lanes + 1,) where each lane begins, ascending, and where the last one ends.
        lookup: of packed().

    Raises:
        UnderstudyError: a lane is empty.
    """

    def __init__(self, blob: NDArray[np.uint8], starts: NDArray[np.int64], lookup: NDArray[np.uint32]) -> None:
        lengths = np.diff(starts)
        if bool((lengths < 1).any()):
            raise UnderstudyError("a position has no bytes")
        padded = np.concatenate([blob, np.zeros(4, np.uint8)]).astype(np.uint32)
        self._pairs = padded[:-1] | padded[1:] << np.uint32(8)
        self._lookup = lookup
        # A state that was renormalised once takes 3 or 4 bytes, and words 2 each: the length's parity tells which.
        widths = np.where(lengths <= 4, lengths, 4 - lengths % 2)
        state = self._pairs[starts[:-1]] | self._pairs[starts[:-1] + 2] << np.uint32(16)
        self._state = state & np.array([0, 0xFF, 0xFFFF, 0xFFFFFF, 0xFFFFFFFF], np.uint32)[widths]
        self._next, self._ends = starts[:-1] + widths, starts[1:].copy()

    def reorder(self, order: NDArray[np.int64]) -> None:
        """Put the lanes into another order."""
        self._state, self._next, self._ends = self._state[order], self._next[order], self._ends[order]

    def values(self, models: NDArray[np.int64], lanes: int) -> NDArray[np.uint32]:
        """The next values of the first lanes, from the row of the frequencies for each."""
        symbols = self.symbols(models, lanes)
        return integers.FIRST[symbols] + self.raw(integers.BITS[symbols], lanes)

    def symbols(self, models: NDArray[np.int64] | int, lanes: int) -> NDArray[np.uint32]:
        """The next symbols of the first lanes."""
        state = self._state[:lanes]
        packed = self._lookup[models * TOTAL + (state & np.uint32(TOTAL - 1))]
        frequency = (packed >> np.uint32(PRECISION) & np.uint32(TOTAL - 1)) + np.uint32(1)
        state >>= np.uint32(PRECISION)
        state *= frequency
        state += packed & np.uint32(TOTAL - 1)
        self._refill(state)
        return packed >> np.uint32(2 * PRECISION)

    def raw(self, bits: NDArray[np.uint32], lanes: int) -> NDArray[np.uint32]:
        """The raw bits that follow in the first lanes, as many as are given for each."""
        state = self._state[:lanes]
        raw = state & ((np.uint32(1) << bits) - np.uint32(1))
        state >>= bits
        self._refill(state)
        return raw

    def _refill(self, state: NDArray[np.uint32]) -> None:
        """Read a word for each of the first lanes whose state is low, if it has one."""
        low = np.flatnonzero(state < LOW)
        at = self._next[low]
        has_word = at < self._ends[low]
        if not has_word.all():
            low, at = low[has_word], at[has_word]
        state[low] = state[low] << np.uint32(16) | self._pairs[at]
        self._next[low] = at + 2

    def finish(self) -> None:
        """Check that all lanes are read to their end.

        Raises:
            UnderstudyError: the bytes are not what encode() wrote with these tables.
        """
        if not (np.array_equal(self._next, self._ends) and bool((self._state == 1).all())):
            raise UnderstudyError("the bytes of a position do not end where they should")


def packed(frequencies: Frequencies) -> NDArray[np.uint32]:
    """For each model and slot in one integer: the symbol (8 bits), its frequency less 1 (12), slot less start (12)."""
    models, symbols = frequencies.shape
    starts = np.cumsum(frequencies, axis=1) - frequencies
    in_slot = np.repeat(np.tile(np.arange(symbols), models), frequencies.ravel())
    rows = np.repeat(np.arange(models), TOTAL)
    offset = np.tile(np.arange(TOTAL), models) - starts[rows, in_slot]
    return (in_slot << 2 * PRECISION | (frequencies[rows, in_slot] - 1) << PRECISION | offset).astype(np.uint32)
