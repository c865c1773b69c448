"""The guard against harmful training steps: losses that are not finite, and loss spikes.

Such a step is skipped, as mixed precision skips one whose gradients overflow (Micikevicius et al. 2018). After many in
a row the weights may be at fault: training rolls back to a checkpoint, and passes over the batches since (Chowdhery et
al. 2022, section 5.1).
"""

import logging
import math
from collections import deque
from statistics import median
from typing import NotRequired, TypedDict

import torch
import torch.distributed as dist
from torch import Tensor

from understudy.errors import UnderstudyError
from understudy.recipe import Guard as Settings

log = logging.getLogger(__name__)

WINDOW = 50
"""Number of losses whose median defines a spike."""
FEWEST = 10
"""With fewer losses there is no spike."""
ROLLBACKS = 3
"""Rollbacks to the same checkpoint, before the training fails."""


class Mark(TypedDict):
    """The guard's actions at a step, for the curve."""

    skipped: NotRequired[int]
    """The step was skipped; the number of skipped steps up to here."""
    passed_over: NotRequired[int]
    """Training rolled back to just before this step; the number of batches passed over up to here."""


class GuardState(TypedDict):
    """The guard's state in a checkpoint."""

    losses: list[float]
    skipped: int
    passed: int


class Guard:
    """Decides which steps are taken, alike on every rank.

    Args:
        settings: of the recipe.
        copies: number of ranks that have each share of a loss.
    """

    def __init__(self, settings: Settings, copies: int) -> None:
        self._settings, self._copies = settings, copies
        self._losses: deque[float] = deque(maxlen=WINDOW)
        self._skipped = self._skipped_in_a_row = 0
        self._reason = ""
        self._back: int | None = None
        self._rollbacks = 0
        self.passed = 0
        """Number of batches passed over: each step reads the batch of the step so many later."""

    @property
    def is_calm(self) -> bool:
        """Whether the last step was taken."""
        return self._skipped_in_a_row == 0

    @property
    def must_roll_back(self) -> bool:
        """Whether to stop skipping steps and roll back."""
        return self._skipped_in_a_row >= self._settings.rollback_after

    def allows(self, step: int, loss: Tensor, norm: Tensor) -> bool:
        """Whether to take a step. Collective: call it on every rank.

        Args:
            step: counted from 1.
            loss: this rank's share.
            norm: of the gradients, the same on every rank.
        """
        # One sum over the world, however ranks share the model: all get the same bits, and a NaN on one is NaN on all.
        # The norm of offloaded parameters is on the CPU, which need not be the device of the loss.
        shared = torch.stack([loss.detach().double().cpu(), norm.detach().double().cpu()])
        dist.all_reduce(shared)
        mean_loss, mean_norm = shared[0].item() / self._copies, shared[1].item() / dist.get_world_size()
        self._reason = self._objection(mean_loss, mean_norm)
        if not self._reason:
            self._losses.append(mean_loss)
            self._skipped_in_a_row = 0
            return True
        self._skipped += 1
        self._skipped_in_a_row += 1
        if self._skipped_in_a_row == 1:
            _warn("step %d is skipped: %s", step, self._reason)
        return False

    def _objection(self, loss: float, norm: float) -> str:
        """The reason to skip a step, or empty."""
        if not math.isfinite(loss):
            return f"its loss is {loss}"
        if not math.isfinite(norm):
            return f"its gradient's norm is {norm}"
        if self._settings.spike is None or len(self._losses) < FEWEST:
            return ""
        usual = median(self._losses)
        if loss <= self._settings.spike * usual:
            return ""
        return f"its loss is {loss:.4g}, and the median of the last {len(self._losses)} is {usual:.4g}"

    def go_back(self, step: int, back: int, state: GuardState) -> None:
        """Continue from a checkpoint, without the batches since.

        Args:
            step: number of steps taken or skipped.
            back: the checkpoint's step.
            state: the guard's state in the checkpoint.

        Raises:
            UnderstudyError: training rolled back to this checkpoint too often.
        """
        self._rollbacks = self._rollbacks + 1 if back == self._back else 1
        self._back = back
        if self._rollbacks > ROLLBACKS:
            raise UnderstudyError(
                f"at step {step}, {self._skipped_in_a_row} in a row were skipped ({self._reason}), and training went "
                f"back to step {back} {ROLLBACKS} times already. {advice(infinite='inf' in self._reason)}; where such "
                "losses are no spikes, raise guard.spike"
            )
        passed = self.passed + step - back
        self.load(state)
        self.passed, self._skipped_in_a_row, self._reason = passed, 0, ""
        _warn("training goes back to step %d, and passes over the %d batches since", back, step - back)

    def mark(self, step: int) -> Mark:
        """The mark of a step that was taken or skipped, counted from 1."""
        mark = Mark()
        if not self.is_calm:
            mark["skipped"] = self._skipped
        if self._back is not None and step == self._back + 1:
            mark["passed_over"] = self.passed
        return mark

    def state_dict(self) -> GuardState:
        """The state for a checkpoint."""
        return GuardState(losses=list(self._losses), skipped=self._skipped, passed=self.passed)

    def load(self, state: GuardState) -> None:
        """Restore the state from state_dict()."""
        self._losses = deque(state["losses"], maxlen=WINDOW)
        self._skipped, self.passed = state["skipped"], state["passed"]


def advice(*, infinite: bool) -> str:
    """The usual remedy for losses that are NaN or infinite; a sentence without its full stop."""
    usual = "A smaller learning rate, a warm-up or max_grad_norm usually helps"
    if not infinite:
        return usual
    return (
        "A loss is infinite where the student's logit is minus infinity for a label, or for an output that its teacher "
        f"gives a probability above 0: a student may exclude only outputs that neither of them has. Otherwise: {usual}"
    )


def _warn(message: str, *values: object) -> None:
    if dist.get_rank() == 0:
        log.warning(message, *values)
