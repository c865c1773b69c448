"""The device mesh of a job, and its named parts.

Parts of the code ask named meshes, never the world: `batch` (who reads different data), `loss` (over whom the loss is
summed), `gradient` (over whom gradients are averaged), `fsdp` (over whom parameters are sharded), `pp` (who holds other
layers), `copies` (who holds the same ones), `cp` (who shares sequences) and `tp` (who shares layers).
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
    gradient: DeviceMesh
    """One-dimensional: gradients are averaged over it."""
    fsdp: DeviceMesh
    """Shards of the parameters, or (replicas, shards)."""
    replicate: DeviceMesh
    """One-dimensional: whole copies of the model."""
    pp: DeviceMesh
    """One-dimensional: stages of the model. Its ranks read the same examples."""
    copies: DeviceMesh
    """One-dimensional: the ranks with the same layers, or parts of them."""
    cp: DeviceMesh
    """One-dimensional: parts of each sequence. Its ranks read the same examples."""
    tp: DeviceMesh
    """One-dimensional: parts of each layer. Its ranks read the same examples."""


def meshes(found: Degrees, device: str, *, apart: bool = False) -> Meshes:
    """The meshes over all processes of the job. To be called on every rank.

    Args:
        found: the degrees.
        device: cpu or cuda.
        apart: whether replicas train apart: shards know nothing of other replicas then.
    """
    # The last dimension's ranks are neighbours: what speaks most, speaks inside a node.
    names = ("pp", "dp_replicate", "dp_shard", "cp", "tp")
    sizes = (found.pp, found.dp_replicate, found.dp_shard, found.cp, found.tp)
    world = init_device_mesh(device, sizes, mesh_dim_names=names)
    # Ranks that share sequences hold the same weights, and gradients of other positions: to weights they are shards
    # where there are shards, and copies where there are copies.
    if found.shards:
        replicate, shards = world["dp_replicate"], world["dp_shard", "cp"]._flatten("dp_shard_cp")
    else:
        replicate, shards = world["dp_replicate", "cp"]._flatten("dp_replicate_cp"), world["dp_shard"]
    return Meshes(
        batch=world["dp_replicate", "dp_shard"]._flatten("batch"),
        loss=world["pp", "dp_replicate", "dp_shard", "cp"]._flatten("loss"),
        gradient=world["dp_replicate", "dp_shard", "cp"]._flatten("gradient"),
        fsdp=DeviceMesh._concatenate([replicate, shards]) if replicate.size() > 1 and not apart else shards,
        replicate=replicate,
        pp=world["pp"],
        copies=world["dp_replicate", "dp_shard", "cp", "tp"]._flatten("copies"),
        cp=world["cp"],
        tp=world["tp"],
    )
