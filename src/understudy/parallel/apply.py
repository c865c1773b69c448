"""Parallelise a model in one fixed order: split its layers, checkpoint activations, shard it, replicate it."""

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
    """Distributes the models of a job over its ranks. Construct it on every rank.

    Args:
        degrees: the degrees.
        device: this rank's device.
        precision: type of matrix multiplications; parameters stay in fp32.
        pipeline: the recipe's settings of stages.
        compression: the recipe's compression of gradients that DistributedDataParallel sends.
        independent: whether replicas train independently, without averaging gradients.
        offloaded: whether shards, their gradients and optimiser state are in CPU memory.
    """

    rank_states: list[Stateful]
    """Per-rank state of replicated models, which a checkpoint stores for each rank."""
    home: torch.device
    """Device of models between uses."""

    def __init__(
        self,
        degrees: Degrees,
        device: torch.device,
        precision: torch.dtype,
        pipeline: Pipeline | None = None,
        compression: Compression | None = None,
        *,
        independent: bool = False,
        offloaded: bool = False,
    ) -> None:
        self.degrees, self.device, self.precision = degrees, device, precision
        self._splits_backward = degrees.pp > 1 and pipeline is not None and pipeline.splits_backward
        self._compression, self._independent, self.rank_states = compression, independent, []
        self._offloaded, self.home = offloaded, torch.device("cpu") if offloaded else device
        self.meshes = meshes(degrees, device.type, independent=independent)

    def over_ranks(
        self,
        model: nn.Module,
        tensor_plan: Mapping[str, str] | None = None,
        path: str = "train",
        savers: Savers = NONE,
    ) -> nn.Module:
        """The model with its layers split and sharded, but not replicated yet; see split()."""
        self.split(model, tensor_plan, path, savers)
        return self.sharded(model)

    def split(self, model: nn.Module, tensor_plan: Mapping[str, str] | None, path: str, savers: Savers) -> None:
        """Split a model's layers as its degrees require, and apply savers, in place.

        Args:
            model: whole, the same on all ranks; with memory or without.
            tensor_plan: overrides the architecture's tensor-parallel plan; None leaves layers whole.
            path: the training's path in the recipe, for errors.
            savers: the recipe's savers.

        Raises:
            InputError: the layers cannot be split, or savers cannot be applied.
        """
        degrees = self.degrees
        if degrees.tp > 1 and tensor_plan is not None:
            tensor_parallel(model, self.meshes.tp, tensor_plan, path, by_position=degrees.sequence_parallel)
        if degrees.cp > 1:
            split = 1 if tensor_plan is None else degrees.tp
            context_parallel(model, self.meshes.cp, degrees.cp_comm_type, split, path)
        savers.apply(model, path, self.device, splits=degrees.tp * degrees.cp * degrees.pp > 1)

    @property
    def wraps(self) -> bool:
        """Whether fully_shard wraps models.

        Offloaded ones need it even on a single process: it moves weights to the device that computes.
        """
        # DDP supports neither split tensors nor pipelines: replicas then use fully_shard with a single shard.
        split = self.degrees.tp > 1 or self.degrees.pp > 1
        return self._offloaded or self.degrees.shards or (split and self.meshes.replicate.size() > 1)

    def sharded(self, model: nn.Module) -> nn.Module:
        """The model with fully_shard around each repeated block, then around the other modules; layers are not split.

        ZeRO stages (Rajbhandari et al. 2020): below the third, weights stay all-gathered after a forward pass.
        """
        if not self.wraps:
            return model
        options: dict[str, Any] = {"mesh": self.meshes.fsdp, "mp_policy": _policy(self.precision)}
        if self._offloaded:
            options["offload_policy"] = CPUOffloadPolicy(pin_memory=self.device.type == "cuda")
        # Schedules that defer weight gradients look for the weights in the autograd graph, where shards are not.
        reshard = None if self.degrees.zero_stage == 3 and not self._splits_backward else False
        for part in (*(block for block in blocks(model) if next(block.parameters(), None) is not None), model):
            fully_shard(part, **options, reshard_after_forward=reshard)
        return model

    def for_inference(self, degrees: Degrees) -> "Spread":
        """A Spread for an inference-only model on the same processes, with different degrees."""
        if degrees == self.degrees:
            return self
        inference = copy.copy(self)
        inference.degrees, inference.meshes = degrees, meshes(degrees, self.device.type)
        inference._splits_backward = False
        if not degrees.shards:  # whole copies stay on the device
            inference._offloaded, inference.home = False, self.device
        return inference

    def own_positions(
        self, inputs: Tensor, labels: Tensor, positions: Tensor | None = None
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """This rank's part of sequences: inputs, labels, and the model's keyword arguments `positions` and `mask`.

        Args:
            inputs: whole sequences.
            labels: of the same sequences.
            positions: each token's position in its document, if a sequence has several. The `mask` is returned where a
                rank cannot derive the documents from its part of the positions.
        """
        mesh = self.meshes.cp
        if mesh.size() == 1:
            return inputs, labels, {} if positions is None else {"positions": positions}
        local = own_positions(inputs.shape[1], mesh, self.degrees.cp_comm_type, inputs.device)
        if positions is None:
            return inputs[:, local], labels[:, local], {"positions": local.expand(len(inputs), -1)}
        return inputs[:, local], labels[:, local], {"positions": positions[:, local], "mask": document_mask(positions)}

    def replicated(self, model: nn.Module) -> nn.Module:
        """The model in DDP, which averages gradients over the copies on other ranks, if there are any.

        Replicas that train independently stay as they are.

        Args:
            model: as over_ranks() returns it, with its weights.
        """
        if self._independent or self.meshes.replicate.size() == 1 or isinstance(model, FSDPModule):
            return model
        # Without find_unused_parameters DDP rebuilds its buckets after the first step, and with them the order in which
        # more than two ranks' gradients are summed: a resumed run would diverge from an uninterrupted one.
        group = self.meshes.replicate.get_group()
        copies = DistributedDataParallel(model, process_group=group, find_unused_parameters=True)
        if self._compression:
            self._compress(copies, self._compression)
        return copies

    def _compress(self, copies: DistributedDataParallel, compression: Compression) -> None:
        group = self.meshes.replicate.get_group()
        if compression.rank is None:
            hook = {"fp16": fp16_compress_hook, "bf16": bf16_compress_hook}[compression.type]
            copies.register_comm_hook(group, hook)
            return
        power = PowerSGD(compression.rank, group)
        copies.register_comm_hook(power, PowerSGD.__call__)
        self.rank_states.append(power)


def _policy(precision: torch.dtype) -> MixedPrecisionPolicy:
    if precision is torch.float32:
        return MixedPrecisionPolicy()
    # In fp16 the sum of several ranks' gradients would overflow where none of them does.
    return MixedPrecisionPolicy(precision, torch.float32 if precision is torch.float16 else None)


def gradient_sync(model: nn.Module, degrees: Degrees, last: bool) -> AbstractContextManager[None]:
    """Context of a micro-batch's backward pass: gradients are averaged over processes only after the last one.

    Sharded gradients are averaged after each: otherwise they would be whole in between.
    """
    if isinstance(model, FSDPModule):
        model.set_requires_gradient_sync(last or (degrees.shards and degrees.zero_stage > 1))
        model.set_reshard_after_backward(last or degrees.zero_stage == 3)
        return nullcontext()
    if isinstance(model, DistributedDataParallel) and not last:
        return model.no_sync()
    return nullcontext()


def reshard(model: nn.Module) -> None:
    """Free all-gathered parameters that a forward pass would keep for a backward pass."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def unwrapped(model: nn.Module) -> nn.Module:
    """The model inside a DDP or DataParallel wrapper."""
    return model.module if isinstance(model, DistributedDataParallel | DataParallel) else model
