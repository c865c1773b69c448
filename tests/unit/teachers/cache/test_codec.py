"""Sparse distributions to bytes and back."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.teachers.cache.distributions import any_sparse, as_dictionaries, rows, skewed
from understudy.errors import UnderstudyError
from understudy.teachers.cache import codec
from understudy.teachers.cache.codec import decode, encode
from understudy.teachers.cache.sparse import Sparse, dense, kl, nucleus, sampled, top_k
from understudy.teachers.cache.tables import STEP, Tables


def again(sparse: Sparse, tables: Tables) -> Sparse:
    """Encoded and decoded."""
    blob, lengths = encode(sparse, tables)
    return decode(blob, np.append(0, np.cumsum(lengths)), tables)


def assert_equal(left: Sparse, right: Sparse) -> None:
    assert left.vocabulary == right.vocabulary
    for one, other in zip(left[:3], right[:3], strict=True):
        assert torch.equal(one, other)


@settings(max_examples=150)
@given(any_sparse(), st.sampled_from([0.02, STEP, 1.0]))
def test_ids_are_exact_and_values_within_half_a_step(sparse: Sparse, step: float) -> None:
    tables = Tables.fit([sparse], step)
    decoded = again(sparse, tables)
    for before, after in zip(as_dictionaries(sparse), as_dictionaries(decoded), strict=True):
        assert set(before) == set(after)
        for key, value in before.items():
            assert abs(value - after[key]) <= step / 2 + 1e-6 * abs(value)
    is_none = sparse.tail == -torch.inf
    assert torch.equal(decoded.tail == -torch.inf, is_none)
    error = (decoded.tail - sparse.tail)[~is_none].abs()
    assert (error <= step / 2 + 1e-6 * sparse.tail[~is_none].abs()).all()


@given(any_sparse())
def test_entries_fall_in_probability_then_rise_in_rank_with_unused_ones_at_the_end(sparse: Sparse) -> None:
    tables = Tables.fit([sparse])
    decoded = again(sparse, tables)
    rank_of = {int(key): rank for rank, key in enumerate(tables.order)}
    for ids, log_probs in zip(decoded.ids.tolist(), decoded.log_probs.tolist(), strict=True):
        used = sum(key >= 0 for key in ids)
        assert set(ids[used:]) <= {-1}
        assert set(log_probs[used:]) <= {-np.inf}
        keys = [(-value, rank_of[key]) for key, value in zip(ids[:used], log_probs[:used], strict=True)]
        assert keys == sorted(keys)
    assert decoded.ids.shape[1] == int((sparse.ids >= 0).sum(-1).max())
    assert_equal(again(decoded, tables), decoded)


def test_classes_that_the_sample_did_not_have_are_coded_too() -> None:
    tables = Tables.fit([top_k(skewed(20, 5000, 0), 30)])
    other = top_k(skewed(20, 5000, 1, spread=6.0), 30)
    assert [set(entries) for entries in as_dictionaries(again(other, tables))] == [
        set(entries) for entries in as_dictionaries(other)
    ]


def test_any_subset_of_positions_decodes_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    sparse = nucleus(skewed(60, 3000), 0.8, 40)
    tables = Tables.fit([sparse])
    blob, lengths = encode(sparse, tables)
    starts = np.append(0, np.cumsum(lengths))
    whole = decode(blob, starts, tables)
    for chosen in ([0], [59, 3, 3], list(range(20, 50))):
        part = b"".join(blob[starts[at] : starts[at + 1]] for at in chosen)
        decoded = decode(part, np.append(0, np.cumsum(lengths[chosen])), tables)
        expected, width = rows(whole, chosen), decoded.ids.shape[1]
        assert_equal(decoded, expected._replace(ids=expected.ids[:, :width], log_probs=expected.log_probs[:, :width]))
        assert (expected.ids[:, width:] == -1).all()
        assert encode(rows(sparse, chosen), tables)[0] == part
    monkeypatch.setattr(codec, "VALUES_AT_A_TIME", 500)
    assert encode(sparse, tables)[0] == blob


@pytest.mark.parametrize("draws", [1, 12, 50])
def test_samples_are_coded_without_loss(draws: int) -> None:
    sparse = sampled(skewed(80, 4000), draws, np.arange(80))
    decoded = again(sparse, Tables.fit([sparse], draws=draws))
    assert as_dictionaries(decoded) == as_dictionaries(sparse)
    assert torch.equal(decoded.tail, sparse.tail)


@given(st.integers(0, 10_000), st.sampled_from([2, 50, 1000]), st.floats(0.1, 8.0), st.sampled_from([0.05, STEP, 0.5]))
def test_quantisation_adds_at_most_a_bounded_divergence(seed: int, k: int, spread: float, step: float) -> None:
    """Of the distribution over entries and tail: Hoeffding's bound at each position."""
    sparse = top_k(skewed(4, 1000, seed, spread), k)
    before = dense(sparse).double()
    assert kl(before, again(sparse, Tables.fit([sparse], step))).max() <= step**2 / 8 + 1e-6


@pytest.mark.parametrize("spread", [1.0, 2.0, 4.0])
def test_the_default_step_adds_less_than_a_thousandth_of_a_nat_on_average(spread: float) -> None:
    sparse = top_k(skewed(500, 2000, spread=spread), 50)
    added = kl(dense(sparse), again(sparse, Tables.fit([sparse])))
    assert 0 < added.mean() <= STEP**2 / 24 < 1e-3


def test_a_distribution_takes_fewer_bytes_than_its_numbers() -> None:
    sparse = top_k(skewed(500, 32_768), 50)
    blob, _ = encode(sparse, Tables.fit([sparse]))
    assert len(blob) / 500 < 70


def test_no_positions_are_no_bytes() -> None:
    tables = Tables.fit([top_k(skewed(5, 20), 3)])
    blob, lengths = encode(rows(top_k(skewed(5, 20), 3), slice(0, 0)), tables)
    assert (blob, len(lengths)) == (b"", 0)
    assert decode(b"", np.zeros(1, np.int64), tables).ids.shape == (0, 0)


def test_distributions_of_another_kind_are_refused() -> None:
    sparse = top_k(skewed(5, 20), 3)
    tables = Tables.fit([sparse])
    for other in (top_k(skewed(5, 21), 3), top_k(skewed(5, 20), 4), sparse._replace(ids=sparse.ids * 0 - 1)):
        with pytest.raises(UnderstudyError, match="1 to 3 of 20 classes"):
            encode(other, tables)
    for value in (torch.nan, 0.2, -1e9):
        with pytest.raises(UnderstudyError, match="log-probability is above 0, NaN, or too small"):
            encode(sparse._replace(log_probs=torch.full_like(sparse.log_probs, value)), tables)
    counts = Tables.fit([sampled(skewed(5, 20), 3, np.arange(5))], draws=3)
    with pytest.raises(UnderstudyError, match="not that of a class drawn in 3 draws"):
        encode(sparse, counts)


@given(st.data())
def test_damaged_bytes_give_an_error_or_a_distribution(data: st.DataObject) -> None:
    sparse = top_k(skewed(3, 300), 8)
    tables = Tables.fit([sparse])
    blob, lengths = encode(sparse, tables)
    damaged = bytearray(blob)
    for _ in range(data.draw(st.integers(1, 5))):
        damaged[data.draw(st.integers(0, len(blob) - 1))] = data.draw(st.integers(0, 255))
    starts = np.append(0, np.cumsum(lengths))
    starts += np.array(data.draw(st.lists(st.integers(-400, 400), min_size=4, max_size=4))) * data.draw(st.booleans())
    try:
        decoded = decode(bytes(damaged), starts, tables)
    except UnderstudyError:
        return
    assert int(decoded.ids.max()) < 300
    assert not decoded.log_probs.isnan().any()


def test_a_claim_of_endless_entries_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    sparse = top_k(skewed(5, 20), 3)
    tables = Tables.fit([sparse])
    monkeypatch.setattr(codec, "ENTRIES_AT_A_TIME", 14)
    with pytest.raises(UnderstudyError, match="more than 14 entries at a time"):
        again(sparse, tables)
