"""Loss scaling for fp16: the loss is multiplied before the backward pass, and gradients are divided before use.

fp16 ends at 6e-8, and many gradients are smaller (Micikevicius et al. 2018). The scale is adapted as in
torch.amp.GradScaler: a step whose gradients overflow is skipped and halves it, many steps without one double it.
"""

from typing import NotRequired, TypedDict

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim import Optimizer

from understudy.errors import UnderstudyError
from understudy.models.parts import local_tensor

INITIAL, LEAST = 2.0**16, 1.0
GROWS_AFTER = 2000
"""Steps in a row without overflow, after which the scale doubles."""


class Overflow(TypedDict):
    """The mark of a step whose gradients overflowed, for the curve."""

    overflow: NotRequired[float]
    """The scale, which was too large; the step was skipped."""


class LossScaleState(TypedDict):
    """The loss scale's state in a checkpoint."""

    value: float
    steps: int


class LossScale:
    """The scale of losses, the same on every rank; a power of two, so that it changes no digit."""

    def __init__(self) -> None:
        self.value, self._steps, self._overflow = INITIAL, 0, Overflow()

    def unscale(self, optimizer: Optimizer) -> None:
        """Divide the gradients of an optimiser's parameters, in place."""
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        gradients = [local_tensor(parameter.grad) for parameter in parameters if parameter.grad is not None]
        torch._foreach_mul_(gradients, 1 / self.value)

    def allows(self, norm: Tensor) -> bool:
        """Whether a step's gradients fit into fp16. Collective: call it on every rank, once a step.

        Args:
            norm: of this rank's unscaled gradients.

        Raises:
            UnderstudyError: no scale is small enough.
        """
        # A sum over the world, however ranks share the model: a value that is not finite on one is so on all.
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
        """The mark of the last step."""
        return self._overflow

    def state_dict(self) -> LossScaleState:
        """The state for a checkpoint."""
        return LossScaleState(value=self.value, steps=self._steps)

    def load(self, state: LossScaleState) -> None:
        """Restore the state from state_dict()."""
        self.value, self._steps = state["value"], state["steps"]
