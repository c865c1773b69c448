"""What each rank has for itself in a checkpoint: tensors that differ by rank, each under its rank's name.

Model and optimiser are in a checkpoint once, whoever holds them, and load onto other degrees. What is kept here loads
onto as many ranks as wrote it.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.stateful import Stateful


def own_tensors(kept: Sequence[Stateful]) -> dict[str, Tensor]:
    """This rank's tensors, by their names in a checkpoint. Until an optimiser's step they stay as they are."""
    return {
        f"{_prefix(number)}{name}": tensor
        for number, one in enumerate(kept)
        for name, tensor in one.state_dict().items()
    }


def load_own(kept: Sequence[Stateful], folder: Path, group: dist.ProcessGroup) -> None:
    """Give each what own_tensors() had of it, on the CPU. To be called on every rank."""
    if not kept:
        return
    stored = FileSystemReader(folder).read_metadata().state_dict_metadata
    own = tuple(_prefix(number) for number in range(len(kept)))
    found = {
        name: torch.empty(what.size, dtype=what.properties.dtype)
        for name, what in stored.items()
        if name.startswith(own) and isinstance(what, TensorStorageMetadata)
    }
    load(found, checkpoint_id=folder, process_group=group)
    for one, prefix in zip(kept, own, strict=True):
        one.load_state_dict(
            {name.removeprefix(prefix): tensor for name, tensor in found.items() if name.startswith(prefix)}
        )


def _prefix(number: int) -> str:
    return f"rank-{dist.get_rank()}.{number}."
