"""Mixup (Zhang et al. 2018): images that are a mean of two, with the labels of both.

Partners and shares follow from (seed, step) for the whole batch. So they are the same under every strategy, and after
a resume.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from understudy.data.loader import Indices


class Mix(NamedTuple):
    """The mix of a batch."""

    partners: Indices
    """The position of each image's partner in the batch."""
    share: float
    """The weight of an image itself; its partner has the rest."""

    def images(self, images: Tensor, partners: Tensor) -> Tensor:
        """The mixed images, uint8 as both are."""
        mixed = self.share * images.float() + (1 - self.share) * partners.float()
        return mixed.round().to(torch.uint8)


def mix(alpha: float, seed: int, step: int, size: int) -> Mix:
    """The mix of a step's batch: one share for all of it, drawn from Beta(alpha, alpha).

    Args:
        alpha: above 0; the larger it is, the nearer shares are to a half.
        seed: the training's.
        step: the training step.
        size: the batch size, the same on every rank.
    """
    random = np.random.default_rng([seed, step, 1])  # other numbers than those of order and augmentation
    return Mix(random.permutation(size), float(random.beta(alpha, alpha)))
