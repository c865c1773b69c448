"""What hurts a training is not learned from: losses that are not numbers, and losses that jump.

Such a step is skipped, as mixed precision skips one whose gradients overflow (Micikevicius et al. 2018). Where many in
a row are, the weights may be at fault: training goes back to a checkpoint, and passes over the batches since (Chowdhery
et al. 2022, section 5.1).
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
"""Losses that a spike is told by."""
FEWEST = 10
"""Before there are as many, no loss is a spike."""
ROLLBACKS = 3
"""To the same checkpoint; then the training fails."""


class Mark(TypedDict):
    """What the guard did at a step, for the curve."""

    skipped: NotRequired[int]
    """The step was skipped; steps that were, up to here."""
    passed_over: NotRequired[int]
    """Training went back to just before this step; batches that were passed over, up to here."""


class Kept(TypedDict):
    """What a checkpoint holds of it."""

    losses: list[float]
    skipped: int
    passed: int


class Guard:
    """Which steps are taken; the same answers on every rank.

    Args:
        settings: of the recipe.
        copies: how many ranks have each share of a loss.
    """

    def __init__(self, settings: Settings, copies: int) -> None:
        self._settings, self._copies = settings, copies
        self._losses: deque[float] = deque(maxlen=WINDOW)
        self._skipped = self._row = 0
        self._reason = ""
        self._back: int | None = None
        self._rollbacks = 0
        self.passed = 0
        """Batches that were passed over: the step after so many reads what it would have read so many steps later."""

    @property
    def is_calm(self) -> bool:
        """Whether the last step was taken."""
        return self._row == 0

    @property
    def gives_up(self) -> bool:
        """Whether skipping does not help."""
        return self._row >= self._settings.rollback_after

    def allows(self, step: int, loss: Tensor, norm: Tensor) -> bool:
        """Whether a step is to be taken. To be called on every rank.

        Args:
            step: counted from 1.
            loss: this rank's share.
            norm: of the gradients, the same on every rank.
        """
        # One sum over all ranks, whatever they share: all get the same bits, and what is not a number on one is none.
        # Of offloaded parameters the norm is on the CPU, whatever computes the loss.
        shared = torch.stack([loss.detach().double().cpu(), norm.detach().double().cpu()])
        dist.all_reduce(shared)
        whole, length = shared[0].item() / self._copies, shared[1].item() / dist.get_world_size()
        self._reason = self._objection(whole, length)
        if not self._reason:
            self._losses.append(whole)
            self._row = 0
            return True
        self._skipped += 1
        self._row += 1
        if self._row == 1:
            _say("step %d is skipped: %s", step, self._reason)
        return False

    def _objection(self, loss: float, norm: float) -> str:
        """Why a step is skipped; empty where it is not."""
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

    def go_back(self, step: int, back: int, kept: Kept) -> None:
        """Go on from a checkpoint, without the batches since.

        Args:
            step: how many steps were taken or skipped.
            back: of these in the checkpoint.
            kept: what the checkpoint holds of the guard.

        Raises:
            UnderstudyError: training was at this checkpoint too often.
        """
        self._rollbacks = self._rollbacks + 1 if back == self._back else 1
        self._back = back
        if self._rollbacks > ROLLBACKS:
            raise UnderstudyError(
                f"at step {step}, {self._row} in a row were skipped ({self._reason}), and training went back to step "
                f"{back} {ROLLBACKS} times already. {advice(infinite='inf' in self._reason)}; where such losses are no "
                "spikes, raise guard.spike"
            )
        passed = self.passed + step - back
        self.load(kept)
        self.passed, self._row, self._reason = passed, 0, ""
        _say("training goes back to step %d, and passes over the %d batches since", back, step - back)

    def mark(self, step: int) -> Mark:
        """What is noted of a step that was taken or skipped, counted from 1."""
        found = Mark()
        if not self.is_calm:
            found["skipped"] = self._skipped
        if self._back is not None and step == self._back + 1:
            found["passed_over"] = self.passed
        return found

    def kept(self) -> Kept:
        """For a checkpoint."""
        return Kept(losses=list(self._losses), skipped=self._skipped, passed=self.passed)

    def load(self, kept: Kept) -> None:
        """What kept() gave."""
        self._losses = deque(kept["losses"], maxlen=WINDOW)
        self._skipped, self.passed = kept["skipped"], kept["passed"]


def advice(*, infinite: bool) -> str:
    """What usually helps against losses that are no numbers, or infinite; a sentence without its full stop."""
    usual = "A smaller learning rate, a warm-up or max_grad_norm usually helps"
    if not infinite:
        return usual
    return (
        "A loss is infinite where the student's logit is minus infinity for a label, or for what its teacher gives a "
        f"probability above 0: a student may forbid only what both of them never ask for. Without such logits: {usual}"
    )


def _say(message: str, *values: object) -> None:
    if dist.get_rank() == 0:
        log.warning(message, *values)
