"""A test split shared out over the ranks of a job: each predicts every n-th batch, with models whole or in shards.

What they predicted comes together on the first rank in the order of the batches. There it is added up as a process
alone would have done it, so that results have the same bits however many ranks there are.
"""

from dataclasses import dataclass
from typing import TypeVar

import torch.distributed as dist

from understudy.parallel.apply import Spread

Found = TypeVar("Found")


@dataclass(frozen=True)
class Share:
    """A rank's share: the batches `rank`, `rank + of`, `rank + 2 * of`, ..."""

    rank: int = 0
    of: int = 1
    spread: Spread | None = None
    """How models are in shards over the ranks, which answer together; None where each rank has them whole."""

    def gathered(self, found: Found | None) -> list[Found]:
        """What the ranks found in one round, in their order, without those that had nothing to do; empty elsewhere
        than on the first rank.
        """
        everything: list[Found | None] = [found] * self.of
        if self.of > 1:
            dist.gather_object(found, everything if self.rank == 0 else None)
        return [one for one in everything if one is not None] if self.rank == 0 else []

    def meet(self) -> None:
        """Wait for the other ranks."""
        if self.of > 1:
            dist.barrier()


WHOLE = Share()
