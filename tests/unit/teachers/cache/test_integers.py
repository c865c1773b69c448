"""Integers as symbols and raw bits."""

import numpy as np

from understudy.teachers.cache import integers


def test_every_integer_has_one_symbol_and_its_raw_bits() -> None:
    values = np.arange(integers.LIMIT)
    symbols, bits, raw = integers.split(values)
    assert np.array_equal(integers.FIRST[symbols] + raw, values)
    assert np.array_equal(integers.BITS[symbols], bits)
    assert (raw < 1 << bits.astype(np.int64)).all()
    assert symbols[:16].tolist() == list(range(16))
    assert int(symbols.max()) + 1 == integers.SYMBOLS == 144


def test_symbols_below_a_limit_are_those_of_its_values() -> None:
    for limit in (1, 2, 16, 17, 18, 33, 32_768, integers.LIMIT):
        symbols = integers.split(np.arange(limit))[0]
        assert integers.symbols_below(limit) == int(symbols.max()) + 1
