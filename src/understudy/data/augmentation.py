"""Random augmentation of training images: flips, crops from a frame around them, and RandAugment.

An image's augmentation follows from (seed, step, position in the batch). So it is the same under every strategy, and
after a resume; teacher and student see the same image (Beyer et al. 2022 found that a student needs this).
"""

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from understudy.data.loader import Indices
from understudy.data.operations import OPERATIONS
from understudy.recipe import Augment


class Augmentation:
    """The augmentation of a recipe's section `augment`, for the batches of one training."""

    def __init__(self, settings: Augment, seed: int, batch_size: int) -> None:
        self._settings, self._seed, self._batch_size = settings, seed, batch_size
        self._operations = settings.rand_augment.operations if settings.rand_augment else 0

    def __call__(self, images: Tensor, step: int, positions: slice | Indices) -> Tensor:
        """The augmented images.

        Args:
            images: uint8 (B, C, S, S).
            step: the training step.
            positions: the positions of these images in the step's batch; a slice may reach beyond a short batch.
        """
        random = np.random.default_rng([self._seed, step])
        flipped = random.random(self._batch_size)[positions] < (0.5 if self._settings.flip else 0.0)
        margin, size, count = self._settings.crop, images.shape[-1], len(images)
        top, left = random.integers(0, 2 * margin + 1, (2, self._batch_size))[:, positions]
        rows = torch.from_numpy(top[:count, None] + np.arange(size))
        columns = left[:count, None] + np.where(flipped[:count, None], np.arange(size)[::-1], np.arange(size))
        padded = functional.pad(images, (margin,) * 4)  # in black
        image = torch.arange(count)[:, None, None]
        augmented = padded[image, :, rows[:, :, None], torch.from_numpy(columns)[:, None, :]]
        augmented = augmented.permute(0, 3, 1, 2).contiguous()
        for _ in range(self._operations):
            operations = random.integers(0, len(OPERATIONS), self._batch_size)[positions][:count]
            signs = random.choice([-1.0, 1.0], self._batch_size)[positions][:count]
            self._operate(augmented, operations, torch.from_numpy(signs))
        return augmented

    def _operate(self, images: Tensor, operations: Indices, signs: Tensor) -> None:
        """Apply an operation to each image, in place."""
        assert self._settings.rand_augment is not None
        strengths = signs * self._settings.rand_augment.magnitude / 10
        for number, operation in enumerate(OPERATIONS.values()):
            indices = torch.from_numpy(np.flatnonzero(operations == number))
            if len(indices):
                images[indices] = operation(images[indices], strengths[indices])
