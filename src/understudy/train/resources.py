"""The resources of a rank: its node's processes, its threads and its device."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class RankResources:
    """The resources of each rank of a training."""

    processes: int
    """Ranks on each node."""
    threads: int
    """CPU threads of each rank."""
    device: Literal["cpu", "cuda"]
    path: str
    """Their path in the recipe, for errors."""
