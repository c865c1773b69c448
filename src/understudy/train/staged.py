"""A model in stages: cut by the cost of its layers, distributed over ranks, and prepared for torch's pipeline."""

import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from understudy.data.loader import Examples, part_width
from understudy.errors import InputError
from understudy.models.tasks import TextModel
from understudy.parallel.apply import Spread, reshard
from understudy.parallel.layout import Layout, OutputSpec, boundaries, stage_costs
from understudy.parallel.pipeline import Pipeline, homes
from understudy.parallel.savers import Savers
from understudy.parallel.stages import Cut, MicroBatch, Stage, cut, without_unused
from understudy.recipe import Pipeline as Settings
from understudy.recipe import Train
from understudy.train.precision import autocast

log = logging.getLogger(__name__)
UNEVEN = 1.05
"""Ratio of the slowest stage to the mean, from which a warning is logged."""


@dataclass(frozen=True)
class Staged:
    """This rank's stages of a model."""

    rank_model: nn.Module
    """As in Cut; used until weights are loaded."""
    stages: Mapping[int, Stage]
    pipeline: Pipeline
    context: partial[AbstractContextManager[None]]
    """The context in which stages compute."""
    tied: tuple[nn.Module, ...]
    """Modules that the rank does not run, with parameters tied to its stages'."""
    ends: tuple[int, int]
    """Pipeline ranks of the first and of the last stage."""
    example: Tensor
    """The inputs of an example."""
    hidden: OutputSpec
    """Shape and type of a micro-batch between stages."""

    @property
    def shared_parameters(self) -> list[nn.Parameter]:
        """Parameters that the ranks of the first and of the last stage share."""
        run = {id(parameter) for stage in self.stages.values() for parameter in stage.model.parameters()}
        tied_parameters = {id(parameter): parameter for module in self.tied for parameter in module.parameters()}
        return [parameter for key, parameter in tied_parameters.items() if key in run]

    def settle(self, device: torch.device) -> nn.Module:
        """Register the weights with fully_shard, once they are loaded.

        Returns:
            This rank's part of the model, under the whole model's names; it cannot be run.
        """
        for stage in self.stages.values():
            if isinstance(stage, FSDPModule):
                stage.to(device)
        return without_unused(self.rank_model, self.tied, [stage.model for stage in self.stages.values()])

    def detect_head(self, device: torch.device) -> None:
        """Detect whether the last stage's logits can be computed for some positions only."""
        for stage in self.stages.values():
            if stage.is_last and isinstance(stage.model, TextModel):
                training = stage.training
                stage.eval()
                stage.model.detect_head(partial(self._example_output, stage, device))
                stage.train(training)
            reshard(stage)

    def _example_output(self, stage: Stage, device: torch.device, reduce: object) -> Tensor:
        """The last stage's result for an example with random hidden states."""
        assert callable(reduce)
        shape = (1, *self.hidden.shape[1:])
        received = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(device, self.hidden.dtype)
        stage.parts = [MicroBatch(self.example.to(device), {}, reduce, self.context)]
        output: Tensor = stage(received, part=0)
        return output


def cut_into_stages(
    model: nn.Module, cuts: Layout, examples: Examples, spread: Spread, train: Train, path: str
) -> Staged:
    """Cut a model, and distribute this rank's stages.

    Args:
        model: from empty_model(); do not use it afterwards.
        cuts: its layout.
        examples: the training split.
        spread: the distribution over ranks.
        train: the recipe's settings.
        path: their path in the recipe, for errors.

    Raises:
        InputError: the model cannot be cut, or its stages cannot be distributed like this.
    """
    mesh, settings, device = spread.meshes.pp, train.pipeline, spread.device
    example, _, _ = spread.own_positions(*examples.batch(np.zeros(1, dtype=np.int64)))
    ranks = homes(settings, mesh.size())
    local_stages = [stage for stage, rank in enumerate(ranks) if rank == mesh.get_local_rank()]
    spread.split(model, train.tensor_plan, path, Savers.of(train))
    parts = boundaries(cuts, len(ranks), path)
    warn_if_uneven(cuts, parts)
    cut_model = cut(model, cuts, parts, local_stages)
    _check_tied(cut_model, spread, settings, path)
    count = train.gradient_accumulation_steps
    width = part_width(train.batch_size, spread.meshes.batch.size(), count)
    hidden = OutputSpec((width, *cuts.hidden.shape[1:]), spread.precision if spread.wraps else cuts.hidden.dtype)
    stages = _spread_stages(cut_model, local_stages, len(ranks) - 1, hidden, spread)
    _check_trained(stages, path)
    return Staged(
        rank_model=cut_model.rank_model,
        stages=stages,
        pipeline=Pipeline(stages, ranks, mesh, settings, count, hidden, device, path),
        context=partial(autocast, spread.precision, device),
        tied=cut_model.tied,
        ends=(ranks[0], ranks[-1]),
        example=example,
        hidden=hidden,
    )


def _check_tied(cut_model: Cut, spread: Spread, settings: Settings, path: str) -> None:
    if cut_model.is_tied and spread.wraps and settings.is_v:
        raise InputError(
            f"{path}.pipeline.schedule: {settings.schedule} has the first and the last stage in one process, and they "
            "have a tied weight, which cannot be in two of fully_shard's groups; use 1F1B, or untie it"
        )


def _check_trained(stages: Mapping[int, Stage], path: str) -> None:
    """Check that each stage has trained parameters, without which it sends no gradients."""
    for number, stage in stages.items():
        if not any(weight.requires_grad for weight in stage.parameters()):
            raise InputError(
                f"{path}.lora.modules: stage {number} of pp would have no adapter; name layers of every block, or use "
                "fsdp"
            )


def _spread_stages(
    cut_model: Cut, local_stages: Sequence[int], last: int, hidden: OutputSpec, spread: Spread
) -> dict[int, Stage]:
    stages = {
        number: Stage(staged, passing, cut_model.tied, hidden.dtype, is_last=number == last)
        for number, (staged, passing) in zip(local_stages, cut_model.stages, strict=True)
    }
    for stage in stages.values():
        spread.sharded(stage)
    return stages


def warn_if_uneven(cuts: Layout, parts: Sequence[range]) -> None:
    """Warn of uneven stages, all of which wait for the slowest."""
    costs = stage_costs(cuts, parts)
    slowest = max(costs) * len(costs) / sum(costs)
    if dist.get_rank() == 0 and slowest > UNEVEN:
        log.warning(
            "the stages have %s blocks, and the slowest takes %.2f times as long as the mean: the others wait for it",
            ", ".join(str(len(part)) for part in parts),
            slowest,
        )
