"""Distributions for the tests of cached logits."""

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from understudy.teachers.cache.sparse import Sparse


def skewed(positions: int, classes: int, seed: int = 0, spread: float = 2.0) -> Tensor:
    """Log-probabilities whose classes have different frequencies, as words do."""
    generator = torch.Generator().manual_seed(seed)
    common = -torch.log(torch.arange(classes) + 2.0)[torch.randperm(classes, generator=generator)]
    return torch.log_softmax(common + spread * torch.randn(positions, classes, generator=generator), dim=-1)


@st.composite
def any_sparse(draw: st.DrawFn) -> Sparse:
    """Any entries with any log-probabilities and tails, in any number and order."""
    classes = draw(st.integers(1, 70_000))
    positions, width = draw(st.integers(1, 5)), draw(st.integers(1, min(classes, 30)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    scale = draw(st.sampled_from([0.01, 1.0, 30.0, 10_000.0]))
    ids = np.stack([rng.choice(classes, width, replace=False) for _ in range(positions)])
    used = np.arange(width) < rng.integers(1, width + 1, (positions, 1))
    log_probs = -scale * rng.random((positions, width)) * rng.integers(0, 2, (positions, width))
    tail = np.where(rng.random(positions) < 0.5, -np.inf, -scale * rng.random(positions))
    return Sparse(
        torch.from_numpy(np.where(used, ids, -1)),
        torch.from_numpy(np.where(used, log_probs, -np.inf)).float(),
        torch.from_numpy(tail).float(),
        classes,
    )


def rows(sparse: Sparse, piece: slice | list[int]) -> Sparse:
    """Some positions."""
    return Sparse(sparse.ids[piece], sparse.log_probs[piece], sparse.tail[piece], sparse.vocabulary)


def as_dictionaries(sparse: Sparse) -> list[dict[int, float]]:
    """For each position the log-probabilities by class."""
    lists = zip(sparse.ids.tolist(), sparse.log_probs.tolist(), strict=True)
    return [{key: value for key, value in zip(*pair, strict=True) if key >= 0} for pair in lists]
