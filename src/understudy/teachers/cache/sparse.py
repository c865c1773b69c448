"""A distribution over the vocabulary as a few entries and the mass outside of them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from understudy.errors import UnderstudyError
from understudy.teachers.cache.integers import log_shares

ROWS_AT_A_TIME = 256
"""Positions whose cumulative sums are in memory at a time: 64 MiB in float64 at a vocabulary of 32,768."""


class Sparse(NamedTuple):
    """Distributions of n positions, of w entries at most: the most probable ones first, unused ones last."""

    ids: Tensor
    """int64 (n, w), distinct in a position; -1 for unused entries."""
    log_probs: Tensor
    """float32 (n, w), natural logarithms of the teacher's (softened) probabilities; -inf for unused entries."""
    tail: Tensor
    """float32 (n,), the logarithm of the mass outside the entries; -inf for none."""
    vocabulary: int

    def to(self, device: torch.device | str) -> "Sparse":
        """The same on a device."""
        return Sparse(self.ids.to(device), self.log_probs.to(device), self.tail.to(device), self.vocabulary)


def top_k(log_probs: Tensor, k: int) -> Sparse:
    """The k most probable classes of log-probabilities (n, K), fewer where less than k are possible.

    Raises:
        UnderstudyError: a position has NaN, or no possible class.
    """
    return _nucleus(log_probs, None, k)


def nucleus(log_probs: Tensor, mass: float, most: int) -> Sparse:
    """The fewest classes of log-probabilities (n, K) whose mass reaches `mass`, at most `most` (Holtzman et al. 2020).

    Raises:
        UnderstudyError: a position has NaN, or no possible class.
    """
    return _nucleus(log_probs, mass, most)


def _nucleus(log_probs: Tensor, mass: float | None, most: int) -> Sparse:
    log_probs = _valid(log_probs).float()
    values, ids = log_probs.topk(min(most, log_probs.shape[1]), dim=-1)
    used = values > -torch.inf
    if mass is not None:
        before = values.double().exp().cumsum(-1) - values.double().exp()
        used &= before < mass
        used[:, 0] = True
    outside = log_probs.scatter(-1, ids, torch.where(used, -torch.inf, values))
    return Sparse(
        torch.where(used, ids, -1),
        torch.where(used, values, -torch.inf),
        torch.logsumexp(outside, dim=-1),
        log_probs.shape[1],
    )


def sampled(log_probs: Tensor, draws: int, seeds: NDArray[np.int64]) -> Sparse:
    """Random sampling knowledge distillation (Anshumann et al., ACL 2025) of log-probabilities (n, K).

    `draws` classes are drawn with replacement from the distribution itself. A class that was drawn c times has the
    probability c / draws, and others have none. For each class the expectation over seeds is its probability, exactly;
    hence the cross entropy with any student, and its gradient, are unbiased. The variance of a class of probability p
    is p (1 - p) / draws.

    A position's draws depend on its log-probabilities and its seed only, not on the batch or the device: the sums are
    taken in float64 on the CPU, and draw i is a hash of the seed and i (SplitMix64; Steele et al. 2014).

    Args:
        log_probs: (n, K) natural logarithms; need not be normalised.
        draws: per position.
        seeds: (n,) one for each position. Positions of the same seed have the same uniform numbers.

    Raises:
        UnderstudyError: a position has NaN, or no possible class.
    """
    rows = _valid(log_probs).float().cpu().contiguous().numpy()
    uniform = _uniform(seeds, draws)
    ids = np.empty((len(rows), draws), np.int64)
    for first in range(0, len(rows), ROWS_AT_A_TIME):
        piece = slice(first, first + ROWS_AT_A_TIME)
        ids[piece] = _drawn(rows[piece], uniform[piece])
    ids.sort(axis=1)
    return _counted(ids, rows.shape[1])


def _valid(log_probs: Tensor) -> Tensor:
    """Log-probabilities in which each position has a possible class, and none has NaN."""
    highest = log_probs.amax(dim=-1)  # NaN if one is NaN
    if not bool(torch.isfinite(highest).all()):
        position = int((~torch.isfinite(highest)).nonzero()[0])
        raise UnderstudyError(
            f"the teacher's distribution at position {position} of a batch has NaN or no possible class. "
            "Check the teacher's weights and its precision."
        )
    return log_probs


def _uniform(seeds: NDArray[np.int64], draws: int) -> NDArray[np.float64]:
    """Numbers (n, draws) in [0, 1), a function of seed and draw."""
    gamma = np.uint64(0x9E3779B97F4A7C15)
    states = _mixed(seeds.astype(np.uint64) + gamma)[:, None] + gamma * np.arange(1, draws + 1, dtype=np.uint64)
    return (_mixed(states) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The output function of SplitMix64."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _drawn(log_probs: NDArray[np.float32], uniform: NDArray[np.float64]) -> NDArray[np.int64]:
    """Classes (n, draws) by the inverse of the cumulative distribution."""
    shifted = log_probs.astype(np.float64) - log_probs.max(axis=1, keepdims=True)
    cumulative = np.exp(shifted, out=shifted).cumsum(axis=1)
    at = uniform * cumulative[:, -1:]
    drawn = torch.searchsorted(torch.from_numpy(cumulative), torch.from_numpy(at), right=True)
    # A number just below 1 may round up to the total: the last class of probability above 0 is meant.
    last = np.argmax(cumulative == cumulative[:, -1:], axis=1)
    classes: NDArray[np.int64] = np.minimum(drawn.numpy(), last[:, None])
    return classes


def _counted(ids: NDArray[np.int64], vocabulary: int) -> Sparse:
    """The distinct of sorted ids (n, draws) with their share of the draws, the most frequent ones in front."""
    positions, draws = ids.shape
    is_first = np.ones(ids.shape, bool)
    is_first[:, 1:] = ids[:, 1:] != ids[:, :-1]
    entries = is_first.cumsum(axis=1) - 1
    counts = np.bincount((entries + np.arange(positions)[:, None] * draws).ravel(), minlength=ids.size)
    counts = counts.reshape(ids.shape)
    distinct = np.full(ids.shape, -1, np.int64)
    distinct[np.nonzero(is_first)[0], entries[is_first]] = ids[is_first]
    order = np.argsort(-counts, axis=1, kind="stable")
    return Sparse(
        torch.from_numpy(np.take_along_axis(distinct, order, axis=1)),
        torch.from_numpy(log_shares(np.take_along_axis(counts, order, axis=1), draws)),
        torch.full((positions,), -torch.inf),
        vocabulary,
    )


def dense(sparse: Sparse) -> Tensor:
    """float32 log-probabilities (n, K) that sum to 1: the entries as they are, the tail's mass equal on all others.

    Classes outside the entries have -inf if there is no tail. All is scaled if entries and tail do not sum to 1.
    """
    ids, log_probs, tail, vocabulary = sparse
    used = ids >= 0
    others = vocabulary - used.sum(-1)
    tail = torch.where(others > 0, tail, -torch.inf)
    total = torch.logsumexp(torch.cat([log_probs.where(used, -torch.inf), tail[:, None]], dim=1), dim=1)
    share = tail - others.clamp(min=1).log() - total
    output = share[:, None].expand(-1, vocabulary).contiguous()
    # An unused entry repeats the first one, which is always used.
    ids = torch.where(used, ids, ids[:, :1])
    return output.scatter_(1, ids, torch.where(used, log_probs, log_probs[:, :1]) - total[:, None])


def joined(parts: Sequence[Sparse], width: int) -> Sparse:
    """Distributions one after the other, on the CPU, with room for `width` entries each."""
    padded = [
        (
            functional.pad(part.ids.cpu(), (0, width - part.ids.shape[1]), value=-1),
            functional.pad(part.log_probs.cpu(), (0, width - part.ids.shape[1]), value=-torch.inf),
            part.tail.cpu(),
        )
        for part in parts
    ]
    ids, log_probs, tail = (torch.cat(tensors) for tensors in zip(*padded, strict=True))
    return Sparse(ids, log_probs, tail, parts[0].vocabulary)


def kl(log_probs: Tensor, sparse: Sparse) -> Tensor:
    """KL(teacher || dense(sparse)) in nats (n,), from the teacher's log-probabilities (n, K)."""
    terms = log_probs.exp() * (log_probs - dense(sparse))
    return terms.masked_fill(log_probs == -torch.inf, 0).sum(-1)
