"""Entropy coding of lanes: independent streams of bytes, coded side by side, one numpy operation for all of them.

It is range asymmetric numeral systems (rANS; Duda 2013) with static frequencies. A lane has a state of 64 bits and
words of 24: a state in [2^40, 2^64) has room for a level and a rank, 40 bits at most, before it is filled up again.
It begins at 1 instead of 2^40, which saves five bytes a lane: the decoder stops to read where the lane's words end, and
must arrive at 1.
"""

import numpy as np
from numpy.typing import NDArray

from understudy.errors import UnderstudyError
from understudy.teachers.cache import integers

PRECISION = 12
TOTAL = 1 << PRECISION
"""The sum of the frequencies of a model."""
WORD = 24
LOW = np.uint64(1 << 40)
"""States are at least this after a refill, unless the lane has no more words."""

Frequencies = NDArray[np.int64]
"""(models, symbols), each row summing to TOTAL."""
Lanes = NDArray[np.int64]


class Symbols:
    """What is to be coded: arrays of one shape (rows, lanes), in the order of decoding.

    Args:
        models: the row of the frequencies for each value; -1 where a lane has no value in that row.
        values: integers in [0, integers.LIMIT).
        joined: (rows,) whether a row is decoded without a refill before the next row, if its value has no raw bits. No
            two rows in succession are.
    """

    def __init__(self, models: NDArray[np.int64], values: NDArray[np.int64], joined: NDArray[np.bool_]) -> None:
        self.models = models
        self.symbols, self.bits, self.raw = integers.split(np.maximum(values, 0))
        self.joined = joined[:, None] & (self.bits == 0) & (models >= 0)


def encode(coded: Symbols, frequencies: Frequencies) -> tuple[bytes, Lanes]:
    """The lanes' bytes end to end, and the length of each.

    Raises:
        UnderstudyError: a symbol has the frequency 0.
    """
    rows, lanes = coded.models.shape
    models = np.maximum(coded.models, 0)
    frequency = frequencies[models, coded.symbols].astype(np.uint64)
    start = (np.cumsum(frequencies, axis=1) - frequencies)[models, coded.symbols].astype(np.uint64)
    if bool(((frequency == 0) & (coded.models >= 0)).any()):
        raise UnderstudyError("cached logits: a value is outside of the tables' range. Fit the tables again.")
    # The frequency of the row before, where it is joined to a row.
    before = np.full(frequency.shape, TOTAL, np.uint64)
    before[1:] = np.where(coded.joined[:-1], frequency[:-1], before[1:])
    state = np.ones(lanes, np.uint64)
    words, counts = np.zeros((lanes, 2 * rows), np.uint32), np.zeros(lanes, np.int64)
    for row in reversed(range(rows)):
        active = np.flatnonzero(coded.models[row] >= 0)
        here, bits = frequency[row, active], coded.bits[row, active].astype(np.uint64)
        # From larger states, the row (and the one before, if joined) would arrive at 2^64; that itself wraps to 0.
        largest = (here * before[row, active] << np.uint64(40) - bits) - np.uint64(1)
        largest[coded.joined[row, active]] = np.uint64(2**64 - 1)
        states = _shrunk(state[active], active, largest, words, counts)
        states = states << bits | coded.raw[row, active].astype(np.uint64)
        quotient, rest = np.divmod(states, here)
        state[active] = (quotient << np.uint64(PRECISION)) + rest + start[row, active]
    return _joined(state, words, counts)


def _shrunk(
    states: NDArray[np.uint64], active: Lanes, largest: NDArray[np.uint64], words: NDArray[np.uint32], counts: Lanes
) -> NDArray[np.uint64]:
    """The states of the active lanes, each at most its largest; what is above goes to the lane's words."""
    for _ in range(2):
        is_large = states > largest
        large = active[is_large]
        words[large, counts[large]] = states[is_large] & np.uint64((1 << WORD) - 1)
        counts[large] += 1
        states[is_large] >>= np.uint64(WORD)
    return states


def _joined(state: NDArray[np.uint64], words: NDArray[np.uint32], counts: Lanes) -> tuple[bytes, Lanes]:
    """For each lane its state, in as few bytes as it has, and its words, the last one first; all little-endian."""
    thresholds = np.uint64(1) << np.arange(0, 64, 8, dtype=np.uint64)
    widths = np.searchsorted(thresholds, state, side="right")
    lengths = widths + 3 * counts
    output = np.zeros(int(lengths.sum()), np.uint8)
    starts = np.cumsum(lengths) - lengths
    for byte in range(8):
        used = widths > byte
        output[starts[used] + byte] = state[used] >> np.uint64(8 * byte) & np.uint64(0xFF)
    lanes = np.repeat(np.arange(len(counts)), counts)
    within = np.arange(len(lanes)) - np.repeat(np.cumsum(counts) - counts, counts)
    at = np.repeat(starts + widths, counts) + 3 * within
    ordered = words[lanes, np.repeat(counts, counts) - 1 - within]
    for byte in range(3):
        output[at + byte] = ordered >> np.uint32(8 * byte) & np.uint32(0xFF)
    return output.tobytes(), lengths


class Decoder:
    """Decodes lanes value by value.

    Args:
        blob: bytes, uint8.
        starts: (lanes + 1,) where each lane begins, ascending, and where the last one ends; no lane is empty.
        lookup: of packed().
    """

    def __init__(self, blob: NDArray[np.uint8], starts: Lanes, lookup: NDArray[np.int64]) -> None:
        padded = np.concatenate([blob, np.zeros(16, np.uint8)]).astype(np.uint32)
        self._words = padded[:-2] | padded[1:-1] << np.uint32(8) | padded[2:] << np.uint32(16)
        self._lookup = lookup
        # The state of a lane with words takes 6 to 8 bytes, and words take 3 each: the length tells which.
        lengths = np.diff(starts)
        widths = np.where(lengths <= 8, lengths, 6 + lengths % 3)
        self._state = np.zeros(len(lengths), np.uint64)
        for word in range(3):
            self._state |= self._words[starts[:-1] + 3 * word].astype(np.uint64) << np.uint64(WORD * word)
        # Two shifts, since a shift by 64 is not defined.
        unused = (64 - 8 * widths).astype(np.uint64)
        self._state = self._state << unused >> unused
        self._next, self._ends = starts[:-1] + widths, starts[1:].copy()

    def reorder(self, order: Lanes) -> None:
        """Put the lanes into another order."""
        self._state, self._next, self._ends = self._state[order], self._next[order], self._ends[order]

    def values(self, models: Lanes) -> tuple[Lanes, Lanes]:
        """The next values of the first lanes, and their symbols.

        Args:
            models: the row of the frequencies for each of these lanes.
        """
        symbols = self._symbols(models)
        values = self._with_raw(symbols)
        self._refill(np.flatnonzero(self._state[: len(models)] < LOW))
        return values, symbols

    def joined_values(self, models: Lanes) -> Lanes:
        """The next values of a row that is joined to the one that follows."""
        symbols = self._symbols(models)
        lanes = np.flatnonzero(symbols >= integers.EXACT)
        if not len(lanes):
            return symbols
        values = self._with_raw(symbols)
        self._refill(lanes[self._state[lanes] < LOW])
        return values

    def _symbols(self, models: Lanes) -> Lanes:
        state = self._state[: len(models)]
        slots = state.view(np.int64) & (TOTAL - 1)
        slots += models << PRECISION
        packed = self._lookup[slots]
        state >>= np.uint64(PRECISION)
        state *= (packed >> PRECISION & 2 * TOTAL - 1).view(np.uint64)
        state += (packed & (TOTAL - 1)).view(np.uint64)
        symbols: Lanes = packed >> 2 * PRECISION + 1
        return symbols

    def _with_raw(self, symbols: Lanes) -> Lanes:
        """The values of symbols, with the raw bits that follow them."""
        state, bits = self._state[: len(symbols)], integers.BITS[symbols]
        raw = state.view(np.int64) & (1 << bits) - 1
        state >>= bits.view(np.uint64)
        raw += integers.FIRST[symbols]
        return raw

    def _refill(self, low: Lanes) -> None:
        """Read words of lanes with low states until these are not, or the lanes have no more."""
        for _ in range(2):
            at = self._next[low]
            has_word = at < self._ends[low]
            if not has_word.all():
                low, at = low[has_word], at[has_word]
            filled = self._state[low] << np.uint64(WORD) | self._words[at]
            self._state[low] = filled
            self._next[low] = at + 3
            low = low[filled < LOW]
            if not len(low):
                return

    def finish(self) -> None:
        """Check that all lanes are read to their end.

        Raises:
            UnderstudyError: the bytes are not what encode() wrote with these tables.
        """
        if not (np.array_equal(self._next, self._ends) and bool((self._state == 1).all())):
            raise UnderstudyError("the bytes of a position do not end where they should")


def packed(frequencies: Frequencies) -> NDArray[np.int64]:
    """For each model and slot in one integer: the symbol (8 bits), its frequency (13), and slot less start (12)."""
    models, symbols = frequencies.shape
    starts = np.cumsum(frequencies, axis=1) - frequencies
    in_slot = np.repeat(np.tile(np.arange(symbols), models), frequencies.ravel())
    rows = np.repeat(np.arange(models), TOTAL)
    offset = np.tile(np.arange(TOTAL), models) - starts[rows, in_slot]
    return in_slot << 2 * PRECISION + 1 | frequencies[rows, in_slot] << PRECISION | offset
