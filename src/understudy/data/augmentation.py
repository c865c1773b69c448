"""Training images changed at random: flipped, and cut out of a frame around them.

What happens to an image follows from (seed, step, its place in the batch). So it is the same under every strategy, and
after a resume; teacher and student see the same image (Beyer et al. 2022 found that a student needs this).
"""

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from understudy.recipe import Augment


class Augmentation:
    """A recipe's section `augment`, for the batches of one training."""

    def __init__(self, settings: Augment, seed: int, batch_size: int) -> None:
        self._settings, self._seed, self._batch_size = settings, seed, batch_size

    def __call__(self, images: Tensor, step: int, places: slice) -> Tensor:
        """The images, changed.

        Args:
            images: uint8 (B, C, S, S).
            step: of the training.
            places: of these images in the step's batch, which may be shorter than the slice.
        """
        random = np.random.default_rng([self._seed, step])
        flipped = random.random(self._batch_size)[places] < (0.5 if self._settings.flip else 0.0)
        frame, size, count = self._settings.crop, images.shape[-1], len(images)
        top, left = random.integers(0, 2 * frame + 1, (2, self._batch_size))[:, places]
        rows = torch.from_numpy(top[:count, None] + np.arange(size))
        columns = left[:count, None] + np.where(flipped[:count, None], np.arange(size)[::-1], np.arange(size))
        framed = functional.pad(images, (frame,) * 4)  # in black
        image = torch.arange(count)[:, None, None]
        changed = framed[image, :, rows[:, :, None], torch.from_numpy(columns)[:, None, :]]
        return changed.permute(0, 3, 1, 2).contiguous()
