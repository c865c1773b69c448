"""In fp16 the loss is multiplied before its gradients are computed, and these are divided before they are used.

fp16 ends at 6e-8, and many gradients are smaller (Micikevicius et al. 2018). How large the factor may be is tried, as
in torch.amp.GradScaler: a step whose gradients overflow is skipped and halves it, many steps without one double it.
"""

from typing import NotRequired, TypedDict

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim import Optimizer

from understudy.errors import UnderstudyError
from understudy.models.parts import kept

INITIAL, LEAST = 2.0**16, 1.0
GROWS_AFTER = 2000
"""Steps in a row without overflow."""


class Overflow(TypedDict):
    """What is noted of a step whose gradients overflowed, for the curve."""

    overflow: NotRequired[float]
    """The step was skipped; the scale that was too large."""


class KeptScale(TypedDict):
    """What a checkpoint holds of it."""

    value: float
    steps: int


class LossScale:
    """The factor of losses, the same on every rank; a power of two, so that it changes no digit."""

    def __init__(self) -> None:
        self.value, self._steps, self._overflow = INITIAL, 0, Overflow()

    def unscale(self, chosen: Optimizer) -> None:
        """Divide the gradients of all that an optimiser trains, in place."""
        parameters = [parameter for group in chosen.param_groups for parameter in group["params"]]
        found = [kept(parameter.grad) for parameter in parameters if parameter.grad is not None]
        torch._foreach_mul_(found, 1 / self.value)

    def allows(self, norm: Tensor) -> bool:
        """Whether a step is to be taken, as far as fp16 goes. To be called on every rank, once a step.

        Args:
            norm: of this rank's gradients, divided.

        Raises:
            UnderstudyError: no scale is small enough.
        """
        # A sum over all ranks, whatever they share: what is not finite on one is so on all.
        shared = norm.detach().double().cpu()
        dist.all_reduce(shared)
        if shared.isfinite():
            self._overflow, self._steps = Overflow(), self._steps + 1
            if self._steps == GROWS_AFTER:
                self.value, self._steps = 2 * self.value, 0
            return True
        self._overflow = Overflow(overflow=self.value)
        self.value, self._steps = self.value / 2, 0
        if self.value < LEAST:
            raise UnderstudyError(
                "gradients overflow in fp16 however small the loss scale is; use precision bf16 or fp32"
            )
        return False

    @property
    def mark(self) -> Overflow:
        """What is noted of the last step."""
        return self._overflow

    def kept(self) -> KeptScale:
        """For a checkpoint."""
        return KeptScale(value=self.value, steps=self._steps)

    def load(self, kept: KeptScale) -> None:
        """What kept() gave."""
        self.value, self._steps = kept["value"], kept["steps"]
