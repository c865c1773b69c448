"""Divergences of distributions given by the logarithms of their probabilities, and gradients through a softmax.

A class of probability 0 has the logarithm minus infinity. It adds the limit of p log p, which is 0.
"""

import math

import torch
from torch import Tensor


def kl(log_first: Tensor, log_second: Tensor) -> Tensor:
    """KL(first || second) (n,) of log-probabilities (n, K); infinite where only the second's probability is 0."""
    likelihoods = log_first.exp()
    return (likelihoods * (log_first - log_second)).masked_fill_(likelihoods == 0, 0).sum(-1)


def mixture(log_first: Tensor, log_second: Tensor, share: float) -> Tensor:
    """The logarithm (n, K) of share * first + (1 - share) * second, for a share between 0 and 1."""
    return torch.logaddexp(log_first + math.log(share), log_second + math.log1p(-share))


def through_softmax(log_likelihoods: Tensor, derivatives: Tensor) -> Tensor:
    """The gradient (n, K) with respect to logits, from that with respect to the probabilities of their softmax.

    It is q_i * (d_i - sum of q_j d_j), so a constant added to all derivatives does not change it. A class of
    probability 0 has no gradient.

    Args:
        log_likelihoods: of the softmax, log q.
        derivatives: with respect to its probabilities, d; any value where q is 0.
    """
    likelihoods = log_likelihoods.exp()
    weighted = (likelihoods * derivatives).masked_fill_(likelihoods == 0, 0)
    return weighted - likelihoods * weighted.sum(-1, keepdim=True)
