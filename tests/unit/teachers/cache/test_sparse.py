"""Distributions as a few entries and a tail."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.teachers.cache.distributions import as_dictionaries, rows, skewed
from understudy.errors import UnderstudyError
from understudy.teachers.cache.sparse import Sparse, dense, kl, nucleus, sampled, top_k


@given(st.integers(1, 40), st.integers(1, 60), st.integers(0, 1000))
def test_top_k_has_the_entries_of_torch_and_the_mass_of_the_others(classes: int, k: int, seed: int) -> None:
    log_probs = skewed(5, classes, seed)
    sparse = top_k(log_probs, k)
    values, ids = log_probs.topk(min(k, classes))
    assert torch.equal(sparse.ids, ids)
    assert torch.equal(sparse.log_probs, values)
    rest = log_probs.double().exp().sort(descending=True).values[:, k:].sum(-1)
    torch.testing.assert_close(sparse.tail.double().exp(), rest, atol=1e-7, rtol=1e-5)


def test_a_small_tail_keeps_its_digits() -> None:
    log_probs = torch.tensor([[0.0, -40.0, -41.0]])
    assert top_k(log_probs, 1).tail.item() == pytest.approx(np.logaddexp(-40, -41), rel=1e-6)


def test_classes_that_are_not_possible_are_no_entries() -> None:
    log_probs = torch.tensor([[-torch.inf, 0.0, -torch.inf], [-0.5, -0.9, -torch.inf]])
    sparse = top_k(log_probs, 3)
    assert sparse.ids.tolist() == [[1, -1, -1], [0, 1, -1]]
    assert sparse.tail.tolist() == [-torch.inf, -torch.inf]
    assert dense(sparse)[0].tolist() == [-torch.inf, 0.0, -torch.inf]


@given(st.floats(0.0, 1.0), st.integers(1, 30), st.integers(0, 1000))
def test_a_nucleus_is_the_fewest_entries_that_reach_the_mass(mass: float, most: int, seed: int) -> None:
    log_probs = skewed(6, 30, seed)
    sparse = nucleus(log_probs, mass, most)
    probabilities = log_probs.double().exp().sort(descending=True).values
    for position, entries in enumerate(as_dictionaries(sparse)):
        count = len(entries)
        assert 1 <= count <= most
        assert count == 1 or probabilities[position, : count - 1].sum() < mass
        assert count == most or probabilities[position, :count].sum() >= mass - 1e-6
    torch.testing.assert_close(
        torch.logsumexp(torch.cat([sparse.log_probs, sparse.tail[:, None]], 1), 1), torch.zeros(6), atol=1e-5, rtol=0
    )


@pytest.mark.parametrize("bad", [torch.nan, -torch.inf, torch.inf])
def test_a_teacher_without_a_distribution_is_refused(bad: float) -> None:
    log_probs = skewed(3, 5)
    log_probs[1] = bad
    for reduce in (lambda: top_k(log_probs, 2), lambda: nucleus(log_probs, 0.9, 2), lambda: draw(log_probs, 4)):
        with pytest.raises(UnderstudyError, match="position 1 of a batch has NaN"):
            reduce()


def draw(log_probs: torch.Tensor, draws: int, first_seed: int = 0) -> Sparse:
    return sampled(log_probs, draws, np.arange(first_seed, first_seed + len(log_probs)))


def test_samples_are_unbiased_with_the_variance_of_a_multinomial() -> None:
    log_probs = skewed(1, 6, spread=1.0)
    expected, draws, trials = log_probs[0].double().exp(), 12, 20_000
    values = dense(draw(log_probs.expand(trials, -1), draws)).double().exp()
    variance = expected * (1 - expected) / draws
    assert ((values.mean(0) - expected).abs() < 4.5 * (variance / trials).sqrt()).all()
    torch.testing.assert_close(values.var(0), variance, rtol=0.06, atol=0)


def test_a_sample_is_the_shares_of_distinct_classes_most_frequent_first() -> None:
    sparse = draw(skewed(50, 100), 12)
    for position, entries in enumerate(as_dictionaries(sparse)):
        counts = np.exp(list(entries.values())) * 12
        assert np.allclose(counts, np.rint(counts), atol=1e-4)
        assert round(counts.sum()) == 12
        assert (np.diff(counts) <= 1e-4).all()
        used = int((sparse.ids[position] >= 0).sum())
        assert (sparse.ids[position, used:] == -1).all()
    assert (sparse.tail == -torch.inf).all()


def test_a_sample_depends_on_the_position_and_its_seed_alone() -> None:
    log_probs = skewed(600, 50)
    whole = draw(log_probs, 20)
    for piece in (slice(0, 1), slice(7, 300), slice(599, 600)):
        again = sampled(log_probs[piece], 20, np.arange(600)[piece])
        for left, right in zip(again[:3], rows(whole, piece)[:3], strict=True):
            assert torch.equal(left, right)
    assert not torch.equal(draw(log_probs, 20, first_seed=1).ids, whole.ids)


def test_an_impossible_class_is_never_drawn() -> None:
    log_probs = torch.full((2000, 4), -torch.inf)
    log_probs[:, 1:3] = torch.tensor([0.5, 0.5]).log()
    assert set(draw(log_probs, 30).ids.unique().tolist()) == {-1, 1, 2}


def test_a_tail_is_equal_on_all_other_classes() -> None:
    sparse = Sparse(torch.tensor([[3, 0], [1, -1]]), torch.log(torch.tensor([[0.5, 0.2], [0.4, 0.0]])),
                    torch.log(torch.tensor([0.3, 0.6])), 5)  # fmt: skip
    expected = torch.tensor([[0.2, 0.1, 0.1, 0.5, 0.1], [0.15, 0.4, 0.15, 0.15, 0.15]])
    torch.testing.assert_close(dense(sparse).exp(), expected)


@given(st.integers(1, 12), st.integers(0, 1000), st.floats(-3, 3))
def test_dense_distributions_sum_to_one(k: int, seed: int, shift: float) -> None:
    sparse = top_k(skewed(4, 12, seed), k)
    shifted = sparse._replace(log_probs=sparse.log_probs + shift)
    torch.testing.assert_close(dense(shifted).exp().sum(-1), torch.ones(4))


def test_all_entries_are_the_whole_distribution() -> None:
    log_probs = skewed(4, 9)
    sparse = top_k(log_probs, 9)
    torch.testing.assert_close(dense(sparse), log_probs)
    torch.testing.assert_close(kl(log_probs, sparse), torch.zeros(4), atol=1e-6, rtol=0)


def test_divergence_is_that_of_the_formula() -> None:
    log_probs = skewed(4, 9).double()
    sparse = top_k(log_probs, 3)
    expected = (log_probs.exp() * (log_probs - dense(sparse).double())).sum(-1)
    torch.testing.assert_close(kl(log_probs, sparse), expected)
    possible = torch.tensor([[0.0, -torch.inf]])
    assert kl(possible, top_k(possible, 1)).item() == 0
