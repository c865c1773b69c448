"""A strategy is a set of degrees on one device mesh; the names people use are shorthand for degrees.

Parts of the code ask named meshes, never the world: `batch` (who reads different data), `loss` (over whom the loss is
summed) and `fsdp` (over whom parameters are sharded). Ranks that share a batch will come with other degrees.
"""

from dataclasses import dataclass

from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from understudy.errors import InputError
from understudy.recipe import Degrees, StrategyName


@dataclass(frozen=True)
class ParallelDegrees:
    """Copies of the model (dp_replicate) times shards of each copy (dp_shard); together the world size."""

    dp_replicate: int
    dp_shard: int

    @property
    def world_size(self) -> int:
        """Processes that take part."""
        return self.dp_replicate * self.dp_shard

    @property
    def shards(self) -> bool:
        """Whether parameters are split over processes."""
        return self.dp_shard > 1


@dataclass(frozen=True)
class Meshes:
    """The named parts of one device mesh."""

    batch: DeviceMesh
    """One-dimensional: each of its ranks reads other examples."""
    loss: DeviceMesh
    """One-dimensional: the loss of a step is summed over it."""
    fsdp: DeviceMesh
    """Shards of the parameters, or (replicas, shards)."""
    replicate: DeviceMesh
    """One-dimensional: whole copies of the model."""


def degrees(strategy: StrategyName | Degrees, nodes: int, processes: int) -> ParallelDegrees:
    """The degrees behind a recipe's strategy.

    hsdp shards inside a node and replicates over nodes; on a single node it keeps two replicas.

    Raises:
        InputError: the strategy does not fit the number of processes.
    """
    world_size = nodes * processes
    if isinstance(strategy, Degrees):
        found = ParallelDegrees(strategy.dp_replicate, strategy.dp_shard)
    else:
        copies = nodes if nodes > 1 else 2
        found = {
            "single": ParallelDegrees(1, 1),
            "ddp": ParallelDegrees(world_size, 1),
            "fsdp": ParallelDegrees(1, world_size),
            "hsdp": ParallelDegrees(copies, max(1, world_size // copies)),
        }[strategy]
    if found.world_size != world_size:
        raise InputError(
            f"train.strategy: {_words(strategy)} takes {found.world_size} processes, resources give {nodes} x "
            f"{processes}"
        )
    return found


def _words(strategy: StrategyName | Degrees) -> str:
    return strategy if isinstance(strategy, str) else str(strategy.model_dump())


def meshes(found: ParallelDegrees, device: str) -> Meshes:
    """The meshes over all processes of the job. To be called on every rank."""
    names = ("dp_replicate", "dp_shard")
    world = init_device_mesh(device, (found.dp_replicate, found.dp_shard), mesh_dim_names=names)
    data = world._flatten("batch")
    sharded = world if found.dp_replicate > 1 else world["dp_shard"]
    return Meshes(batch=data, loss=data, fsdp=sharded, replicate=world["dp_replicate"])
