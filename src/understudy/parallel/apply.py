"""Applying degrees to a model: shard it, replicate it, or both."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

from understudy.parallel.mesh import Meshes, ParallelDegrees


def parallelize(model: nn.Module, found: ParallelDegrees, over: Meshes, precision: torch.dtype) -> nn.Module:
    """The model, spread over the mesh: fully_shard on dp_shard (replicated over dp_replicate), or DDP.

    Gradients come out averaged over all processes.
    """
    if found.shards:
        shard(model, over.fsdp, precision)
        return model
    if found.dp_replicate > 1:
        # Without find_unused_parameters DDP sorts its buckets anew after the first step, and with them the order in
        # which more than two ranks' gradients are summed: a run that resumes would part from one that went on.
        return DistributedDataParallel(model, process_group=over.replicate.get_group(), find_unused_parameters=True)
    return model


def shard(model: nn.Module, mesh: DeviceMesh, precision: torch.dtype) -> None:
    """Shard a model in place: each of its repeated blocks on its own, then what is left."""
    policy = MixedPrecisionPolicy(param_dtype=None if precision is torch.float32 else precision)
    for block in blocks(model):
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)


def blocks(model: nn.Module) -> list[nn.Module]:
    """The model's repeated blocks: the children of its largest ModuleList; none when it has no such list."""
    lists: list[nn.Module] = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    return list(max(lists, key=_weight).children()) if lists else []


def _weight(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def gradient_sync(model: nn.Module, enabled: bool) -> AbstractContextManager[None]:
    """Within this context a backward pass averages gradients over processes only if enabled."""
    if isinstance(model, FSDPModule):
        model.set_requires_gradient_sync(enabled)
        return nullcontext()
    if isinstance(model, DistributedDataParallel) and not enabled:
        return model.no_sync()
    return nullcontext()


def unwrapped(model: nn.Module) -> nn.Module:
    """The model below DDP's wrapper."""
    return model.module if isinstance(model, DistributedDataParallel) else model
