"""Division of a test split over the ranks of a job: each predicts every n-th batch, with whole or sharded models.

Predictions are gathered on the first rank in the order of the batches. They are summed there as by a single process,
so that results are bitwise the same on any number of ranks.
"""

from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist

from understudy.parallel.apply import Spread

Result = TypeVar("Result")


@dataclass(frozen=True)
class Share:
    """A rank's share: the batches `rank`, `rank + world_size`, `rank + 2 * world_size`, ..."""

    rank: int = 0
    world_size: int = 1
    spread: Spread | None = None
    """How models are sharded over the ranks; None if each rank has whole models."""

    def gathered(self, result: Result | None) -> list[Result]:
        """The results of one round in rank order, without idle ranks; empty on all ranks but the first."""
        results: list[Result | None] = [result] * self.world_size
        if self.world_size > 1:
            dist.gather_object(result, results if self.rank == 0 else None)
        return [item for item in results if item is not None] if self.rank == 0 else []

    def all_done(self, done: bool, device: torch.device) -> bool:
        """Whether all ranks are done that have to compute together; without sharded models, this rank alone."""
        if not self.spread:
            return done
        count = torch.tensor(int(done), device=device)
        dist.all_reduce(count)
        return int(count) == self.world_size

    def meet(self) -> None:
        """Wait for the other ranks."""
        if self.world_size > 1:
            dist.barrier()


WHOLE = Share()
