"""Applying degrees to a model, in one fixed order: split its layers, then shard it, replicate it, or both."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

from understudy.parallel.mesh import Meshes
from understudy.parallel.tensor import tensor_parallel
from understudy.recipe import Degrees


def parallelize(
    model: nn.Module,
    found: Degrees,
    over: Meshes,
    precision: torch.dtype,
    tensor_plan: Mapping[str, str] | None = None,
    where: str = "train",
) -> nn.Module:
    """The model, spread over the mesh. Gradients come out averaged over all processes that read.

    Args:
        model: whole, the same on all ranks.
        found: the degrees.
        over: their meshes.
        precision: of matrix products; parameters stay in fp32.
        tensor_plan: what goes before the architecture's own plan for tensor parallel; None leaves layers whole.
        where: the recipe's path of the training, for errors.

    Raises:
        InputError: the layers cannot be split.
    """
    if found.tp > 1 and tensor_plan is not None:
        tensor_parallel(model, over.tp, tensor_plan, where)
    # DDP takes no tensors that are split already, so their copies are those of fully_shard with a single shard.
    if found.shards or (found.tp > 1 and found.dp_replicate > 1):
        shard(model, found, over, precision)
        return model
    if found.dp_replicate > 1:
        # Without find_unused_parameters DDP sorts its buckets anew after the first step, and with them the order in
        # which more than two ranks' gradients are summed: a run that resumes would part from one that went on.
        return DistributedDataParallel(model, process_group=over.replicate.get_group(), find_unused_parameters=True)
    return model


def shard(model: nn.Module, found: Degrees, over: Meshes, precision: torch.dtype) -> None:
    """Shard a model in place: each of its repeated blocks on its own, then what is left.

    The stages of ZeRO (Rajbhandari et al. 2020): before the third one, weights that a forward pass has gathered stay.
    """
    policy = MixedPrecisionPolicy(param_dtype=None if precision is torch.float32 else precision)
    again = None if found.zero_stage == 3 else False
    for block in blocks(model):
        fully_shard(block, mesh=over.fsdp, mp_policy=policy, reshard_after_forward=again)
    fully_shard(model, mesh=over.fsdp, mp_policy=policy, reshard_after_forward=again)


def blocks(model: nn.Module) -> list[nn.Module]:
    """The model's repeated blocks: the children of its largest ModuleList; none when it has no such list."""
    lists: list[nn.Module] = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    return list(max(lists, key=_weight).children()) if lists else []


def _weight(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def gradient_sync(model: nn.Module, found: Degrees, last: bool) -> AbstractContextManager[None]:
    """The context of one part's backward pass: gradients are averaged over processes after the last one.

    Where gradients are sharded it is after each: in between they would be whole.
    """
    if isinstance(model, FSDPModule):
        model.set_requires_gradient_sync(last or (found.shards and found.zero_stage > 1))
        model.set_reshard_after_backward(last or found.zero_stage == 3)
        return nullcontext()
    if isinstance(model, DistributedDataParallel) and not last:
        return model.no_sync()
    return nullcontext()


def unwrapped(model: nn.Module) -> nn.Module:
    """The model below DDP's wrapper."""
    return model.module if isinstance(model, DistributedDataParallel) else model
