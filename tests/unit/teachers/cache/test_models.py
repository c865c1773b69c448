"""Models of values, and their frequencies."""

import numpy as np

from understudy.teachers.cache import integers, models, rans


def test_each_kind_of_value_has_models_of_its_own() -> None:
    values = np.arange(200)
    none = np.zeros(200, np.bool_)
    symbols = np.arange(integers.SYMBOLS)
    ranges = {
        models.FIRST: models.first_models(values),
        models.GAP: np.concatenate([models.gap_models(models.place_class(place), values) for place in range(1, 500)]),
        models.RANK: np.concatenate([models.rank_models(models.place_class(at), none, values) for at in range(500)]),
        models.TIE: models.rank_models(0, np.ones(len(symbols), np.bool_), symbols),
    }
    ends = dict(zip(models.KINDS, models.KINDS[1:], strict=False))
    for first, chosen in ranges.items():
        assert first <= chosen.min() <= chosen.max() < ends[first]
    counts = models.count_gap_models(values)
    assert models.GAP <= counts.min() <= counts.max() < ends[models.GAP]


def test_frequencies_follow_what_was_seen_and_leave_room_for_the_rest() -> None:
    limits = np.full(models.MODELS, 20)
    limits[models.COUNT] = 1
    seen = np.repeat([models.GAP, models.GAP + 1], 1000)
    symbols = np.concatenate([np.repeat([0, 3], 500), np.repeat([0, 7], [900, 100])]).astype(np.uint8)
    table = models.frequencies(seen, symbols, limits)
    assert (table.sum(axis=1) == rans.TOTAL).all()
    assert np.array_equal(table > 0, np.arange(integers.SYMBOLS) < limits[:, None])
    assert abs(table[models.GAP, 3] / rans.TOTAL - 0.5) < 0.02
    assert abs(table[models.GAP + 1, 0] / rans.TOTAL - 0.9) < 0.02
    # Models that were not seen are like those of their kind together, or even.
    assert table[models.GAP + 2, 0] > 0.6 * rans.TOTAL
    assert table[models.TAIL, :20].max() - table[models.TAIL, :20].min() < 20
