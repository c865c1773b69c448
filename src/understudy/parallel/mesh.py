"""The device mesh of a job, and its named submeshes.

Code uses a named submesh, never the world: `batch` (ranks that read different data), `loss` (the loss is summed over
it), `gradient` (gradients are averaged over it), `fsdp` (parameters are sharded over it), `pp` (ranks with different
layers), `copies` (with the same layers), `cp` (that share sequences) and `tp` (that share layers).
"""

from dataclasses import dataclass

from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from understudy.recipe import Degrees


@dataclass(frozen=True)
class Meshes:
    """The named submeshes of a device mesh."""

    batch: DeviceMesh
    """One-dimensional: its ranks read different examples."""
    loss: DeviceMesh
    """One-dimensional: the loss of a step is summed over it."""
    gradient: DeviceMesh
    """One-dimensional: gradients are averaged over it."""
    fsdp: DeviceMesh
    """Shards of the parameters, or (replicas, shards)."""
    replicate: DeviceMesh
    """One-dimensional: replicas of the model."""
    pp: DeviceMesh
    """One-dimensional: stages of the model. Its ranks read the same examples."""
    copies: DeviceMesh
    """One-dimensional: the ranks with the same layers, or parts of them."""
    cp: DeviceMesh
    """One-dimensional: parts of each sequence. Its ranks read the same examples."""
    tp: DeviceMesh
    """One-dimensional: parts of each layer. Its ranks read the same examples."""


def meshes(degrees: Degrees, device: str, *, independent: bool = False) -> Meshes:
    """The meshes over all processes of the job. Collective: call it on every rank.

    Args:
        degrees: the degrees.
        device: cpu or cuda.
        independent: whether replicas train independently, so that `fsdp` leaves them out.
    """
    # The last dimension's ranks are neighbours: the most communication stays inside a node.
    names = ("pp", "dp_replicate", "dp_shard", "cp", "tp")
    sizes = (degrees.pp, degrees.dp_replicate, degrees.dp_shard, degrees.cp, degrees.tp)
    world = init_device_mesh(device, sizes, mesh_dim_names=names)
    # Ranks that share sequences have the same weights, and gradients of different positions: if weights are sharded,
    # these ranks are shards, else replicas.
    if degrees.shards:
        replicate, shards = world["dp_replicate"], world["dp_shard", "cp"]._flatten("dp_shard_cp")
    else:
        replicate, shards = world["dp_replicate", "cp"]._flatten("dp_replicate_cp"), world["dp_shard"]
    return Meshes(
        batch=world["dp_replicate", "dp_shard"]._flatten("batch"),
        loss=world["pp", "dp_replicate", "dp_shard", "cp"]._flatten("loss"),
        gradient=world["dp_replicate", "dp_shard", "cp"]._flatten("gradient"),
        fsdp=DeviceMesh._concatenate([replicate, shards]) if replicate.size() > 1 and not independent else shards,
        replicate=replicate,
        pp=world["pp"],
        copies=world["dp_replicate", "dp_shard", "cp", "tp"]._flatten("copies"),
        cp=world["cp"],
        tp=world["tp"],
    )
