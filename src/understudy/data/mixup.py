"""Mixup (Zhang et al. 2018): images that are a mean of two, with the labels of both.

Who is mixed with whom, and how much of each there is, follows from (seed, step) for the whole batch. So it is the same
under every strategy, and after a resume.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from understudy.data.loader import Indices


class Mix(NamedTuple):
    """How a batch is mixed."""

    partners: Indices
    """Of each place in the batch, the place of whom it is mixed with."""
    share: float
    """Of an image itself; its partner has the rest."""

    def images(self, own: Tensor, partners: Tensor) -> Tensor:
        """The mixed images, uint8 as both are."""
        mixed = self.share * own.float() + (1 - self.share) * partners.float()
        return mixed.round().to(torch.uint8)


def mix(alpha: float, seed: int, step: int, size: int) -> Mix:
    """How the batch of a step is mixed: one share for all of it, of Beta(alpha, alpha).

    Args:
        alpha: above 0; the larger, the nearer shares are to a half.
        seed: of the training.
        step: of the training.
        size: of the batch, the same on every rank.
    """
    random = np.random.default_rng([seed, step, 1])  # other numbers than those of order and augmentation
    return Mix(random.permutation(size), float(random.beta(alpha, alpha)))
