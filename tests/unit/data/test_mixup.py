"""Mixup: shares as they are to be distributed, partners of the whole batch, and images that are means."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from understudy.data.mixup import Mix, mix


def test_shares_are_of_a_beta_distribution() -> None:
    shares = [mix(0.4, 3, step, 16).share for step in range(2000)]
    assert stats.kstest(shares, stats.beta(0.4, 0.4).cdf).pvalue > 0.01


@given(st.integers(0, 2**31 - 1), st.integers(0, 10**6), st.integers(1, 64))
def test_each_image_is_somebodys_partner_once_and_always_the_same(seed: int, step: int, size: int) -> None:
    mixture = mix(0.2, seed, step, size)
    assert sorted(mixture.partners.tolist()) == list(range(size))
    again = mix(0.2, seed, step, size)
    assert mixture.share == again.share
    np.testing.assert_array_equal(mixture.partners, again.partners)


def test_a_mixed_image_is_the_mean_by_shares() -> None:
    images, partners = torch.randint(0, 256, (2, 3, 1, 5, 5), generator=torch.Generator().manual_seed(0)).to(
        torch.uint8
    )
    mixed = Mix(np.arange(3), 0.3).images(images, partners)
    assert mixed.dtype == torch.uint8
    expected = 0.3 * images.numpy().astype(np.float64) + 0.7 * partners.numpy()
    np.testing.assert_allclose(mixed.numpy(), expected, atol=0.5 + 1e-4)
