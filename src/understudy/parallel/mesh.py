"""The device mesh of a job, and its named parts.

Parts of the code ask named meshes, never the world: `batch` (who reads different data), `loss` (over whom the loss is
summed), `fsdp` (over whom parameters are sharded) and `tp` (who shares the layers).
"""

from dataclasses import dataclass

from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from understudy.recipe import Degrees


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
    tp: DeviceMesh
    """One-dimensional: parts of each layer. Its ranks read the same examples."""


def meshes(found: Degrees, device: str) -> Meshes:
    """The meshes over all processes of the job. To be called on every rank."""
    # The last dimension's ranks are neighbours: what speaks most, speaks inside a node.
    names = ("dp_replicate", "dp_shard", "tp")
    world = init_device_mesh(device, (found.dp_replicate, found.dp_shard, found.tp), mesh_dim_names=names)
    copies = world["dp_replicate", "dp_shard"]
    batch = copies._flatten("batch")
    sharded = copies if found.dp_replicate > 1 else world["dp_shard"]
    return Meshes(batch=batch, loss=batch, fsdp=sharded, replicate=world["dp_replicate"], tp=world["tp"])
