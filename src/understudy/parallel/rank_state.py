"""Per-rank state in a checkpoint: tensors that differ by rank, each under its rank's name.

A checkpoint has model and optimiser once, however they are sharded, and loads them onto other degrees. Per-rank state
loads onto as many ranks as wrote it.
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


def rank_tensors(states: Sequence[Stateful]) -> dict[str, Tensor]:
    """This rank's tensors, by their names in a checkpoint. They do not change before an optimiser's step."""
    return {
        f"{_prefix(number)}{name}": tensor
        for number, state in enumerate(states)
        for name, tensor in state.state_dict().items()
    }


def load_rank_tensors(states: Sequence[Stateful], folder: Path, group: dist.ProcessGroup) -> None:
    """Load the tensors of rank_tensors() into their objects, on the CPU. Collective: call it on every rank."""
    if not states:
        return
    stored = FileSystemReader(folder).read_metadata().state_dict_metadata
    prefixes = tuple(_prefix(number) for number in range(len(states)))
    tensors = {
        name: torch.empty(entry.size, dtype=entry.properties.dtype)
        for name, entry in stored.items()
        if name.startswith(prefixes) and isinstance(entry, TensorStorageMetadata)
    }
    load(tensors, checkpoint_id=folder, process_group=group)
    for state, prefix in zip(states, prefixes, strict=True):
        state.load_state_dict(
            {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
        )


def _prefix(number: int) -> str:
    return f"rank-{dist.get_rank()}.{number}."
