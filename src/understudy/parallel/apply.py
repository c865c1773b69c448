"""Applying degrees to a model, in one fixed order: split its layers, recompute activations, shard it, replicate it."""

import copy
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook, fp16_compress_hook
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DataParallel, DistributedDataParallel

from understudy.parallel.blocks import blocks
from understudy.parallel.context import context_parallel, document_mask, own_positions
from understudy.parallel.mesh import meshes
from understudy.parallel.powersgd import PowerSGD
from understudy.parallel.savers import NONE, Savers
from understudy.parallel.tensor import tensor_parallel
from understudy.recipe import Compression, Degrees, Pipeline


class Spread:
    """How the models of a job are spread over its ranks. To be made on every rank.

    Args:
        found: the degrees.
        device: this rank's.
        precision: of matrix products; parameters stay in fp32.
        pipeline: the recipe's, where there are stages.
        compression: the recipe's, of gradients that DistributedDataParallel sends.
        apart: whether replicas train apart: their gradients stay their own.
        offloaded: whether shards, with all that belongs to them, lie in the CPU's memory.
    """

    own: list[Stateful]
    """What this rank has for itself of models that were replicated: a checkpoint holds it for each rank."""
    home: torch.device
    """Where models lie between their uses."""

    def __init__(
        self,
        found: Degrees,
        device: torch.device,
        precision: torch.dtype,
        pipeline: Pipeline | None = None,
        compression: Compression | None = None,
        *,
        apart: bool = False,
        offloaded: bool = False,
    ) -> None:
        self.degrees, self.device, self.precision = found, device, precision
        self._splits_backward = found.pp > 1 and pipeline is not None and pipeline.splits_backward
        self._compression, self._apart, self.own = compression, apart, []
        self._offloaded, self.home = offloaded, torch.device("cpu") if offloaded else device
        self.meshes = meshes(found, device.type, apart=apart)

    def over_ranks(
        self,
        model: nn.Module,
        tensor_plan: Mapping[str, str] | None = None,
        where: str = "train",
        savers: Savers = NONE,
    ) -> nn.Module:
        """The model, each rank with its part, as far as its parts differ: layers split, and in shards; see split()."""
        self.split(model, tensor_plan, where, savers)
        return self.sharded(model)

    def split(self, model: nn.Module, tensor_plan: Mapping[str, str] | None, where: str, savers: Savers) -> None:
        """Split a model's layers in place, as far as degrees ask for it.

        Args:
            model: whole, the same on all ranks; its tensors may be without memory.
            tensor_plan: what goes before the architecture's own plan for tensor parallel; None leaves layers whole.
            where: the recipe's path of the training, for errors.
            savers: the recipe's.

        Raises:
            InputError: the layers cannot be split, or there are no blocks for savers.
        """
        found = self.degrees
        if found.tp > 1 and tensor_plan is not None:
            tensor_parallel(model, self.meshes.tp, tensor_plan, where, by_position=found.sequence_parallel)
        if found.cp > 1:
            split = 1 if tensor_plan is None else found.tp
            context_parallel(model, self.meshes.cp, found.cp_comm_type, split, where)
        savers.apply(model, where, self.device, splits=found.tp * found.cp * found.pp > 1)

    @property
    def wraps(self) -> bool:
        """Whether fully_shard is around models. What is offloaded needs it, even on a single process: it brings weights
        to the device that computes.
        """
        # DDP takes no tensors that are split already, and no pipeline: copies are then those of fully_shard with a
        # single shard.
        split = self.degrees.tp > 1 or self.degrees.pp > 1
        return self._offloaded or self.degrees.shards or (split and self.meshes.replicate.size() > 1)

    def sharded(self, model: nn.Module) -> nn.Module:
        """The model, with each of its repeated blocks in shards, and then what is left; its layers stay whole.

        The stages of ZeRO (Rajbhandari et al. 2020): before the third, weights that a forward pass has gathered stay.
        """
        if not self.wraps:
            return model
        options: dict[str, Any] = {"mesh": self.meshes.fsdp, "mp_policy": _policy(self.precision)}
        if self._offloaded:
            options["offload_policy"] = CPUOffloadPolicy(pin_memory=self.device.type == "cuda")
        # Schedules that compute the gradients of weights later look for them in the graph, where shards are not.
        again = None if self.degrees.zero_stage == 3 and not self._splits_backward else False
        for part in (*(block for block in blocks(model) if next(block.parameters(), None) is not None), model):
            fully_shard(part, **options, reshard_after_forward=again)
        return model

    def for_questions(self, found: Degrees) -> "Spread":
        """For a model beside this one's that is only asked, with degrees of its own on the same processes."""
        if found == self.degrees:
            return self
        other = copy.copy(self)
        other.degrees, other.meshes, other._splits_backward = found, meshes(found, self.device.type), False
        if not found.shards:  # whole copies stay on the device
            other._offloaded, other.home = False, self.device
        return other

    def own_positions(
        self, inputs: Tensor, labels: Tensor, positions: Tensor | None = None
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """This rank's part of sequences: inputs, labels, and what a model has to be told of `positions` beside them.

        Args:
            inputs: of whole sequences.
            labels: of the same.
            positions: of several documents in a sequence, each in its own; their `mask` is told, too, where a rank does
                not see from its part of them which positions are whose.
        """
        mesh = self.meshes.cp
        if mesh.size() == 1:
            return inputs, labels, {} if positions is None else {"positions": positions}
        own = own_positions(inputs.shape[1], mesh, self.degrees.cp_comm_type, inputs.device)
        if positions is None:
            return inputs[:, own], labels[:, own], {"positions": own.expand(len(inputs), -1)}
        return inputs[:, own], labels[:, own], {"positions": positions[:, own], "mask": document_mask(positions)}

    def replicated(self, model: nn.Module) -> nn.Module:
        """The model with its copies on other ranks, if there are any: gradients come out averaged over them.

        Replicas that train apart stay as they are.

        Args:
            model: as over_ranks() returns it, with its weights.
        """
        if self._apart or self.meshes.replicate.size() == 1 or isinstance(model, FSDPModule):
            return model
        # Without find_unused_parameters DDP sorts its buckets anew after the first step, and with them the order in
        # which more than two ranks' gradients are summed: a run that resumes would part from one that went on.
        group = self.meshes.replicate.get_group()
        copies = DistributedDataParallel(model, process_group=group, find_unused_parameters=True)
        if self._compression:
            self._compress(copies, self._compression)
        return copies

    def _compress(self, copies: DistributedDataParallel, chosen: Compression) -> None:
        group = self.meshes.replicate.get_group()
        if chosen.rank is None:
            hook = {"fp16": fp16_compress_hook, "bf16": bf16_compress_hook}[chosen.type]
            copies.register_comm_hook(group, hook)
            return
        power = PowerSGD(chosen.rank, group)
        copies.register_comm_hook(power, PowerSGD.__call__)
        self.own.append(power)


def _policy(precision: torch.dtype) -> MixedPrecisionPolicy:
    if precision is torch.float32:
        return MixedPrecisionPolicy()
    # The sum of several ranks' gradients in fp16 would overflow where none of them does.
    return MixedPrecisionPolicy(precision, torch.float32 if precision is torch.float16 else None)


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


def reshard(model: nn.Module) -> None:
    """Give up what a forward pass has gathered and would keep for a backward pass."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def unwrapped(model: nn.Module) -> nn.Module:
    """The model below the wrapper of DDP, or of DataParallel."""
    return model.module if isinstance(model, DistributedDataParallel | DataParallel) else model
