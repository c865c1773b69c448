"""Pipeline parallel: each rank runs some stages of a model, for one micro-batch after another.

The schedules are torch's: GPipe (Huang et al. 2019), 1F1B (Narayanan et al. 2019), LoopedBFS (Lamy-Poirier 2023),
Interleaved1F1B (Narayanan et al. 2021), zero-bubble and its V (Qi et al. 2024), DualPipeV (DeepSeek-AI 2024).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import PipelineScheduleMulti, get_schedule_class
from torch.distributed.tensor import DTensor

from understudy.errors import InputError
from understudy.models.parts import local_tensor
from understudy.parallel.layout import OutputSpec
from understudy.parallel.stages import MicroBatch, Stage
from understudy.recipe import Pipeline as Settings


def homes(settings: Settings, ranks: int) -> list[int]:
    """The rank of each stage: round-robin, or back and forth if the schedule is V-shaped."""
    count = ranks * settings.stages_per_rank
    if settings.is_v:
        return [stage if stage < ranks else count - 1 - stage for stage in range(count)]
    return [stage % ranks for stage in range(count)]


class Pipeline:
    """The stages of all ranks. Construct it on every rank.

    Args:
        stages: this rank's stages, by number.
        homes: the rank of each stage.
        mesh: one-dimensional, over the ranks.
        settings: the recipe's settings.
        parts: number of micro-batches in a step.
        hidden: shape and type of a micro-batch between stages.
        device: this rank's device.
        path: the training's path in the recipe, for errors.

    Raises:
        InputError: the schedule needs more micro-batches, or another number of them.
    """

    def __init__(
        self,
        stages: Mapping[int, Stage],
        homes: Sequence[int],
        mesh: DeviceMesh,
        settings: Settings,
        parts: int,
        hidden: OutputSpec,
        device: torch.device,
        path: str,
    ) -> None:
        self._stages, self._homes, self._group, self._device = stages, homes, mesh.get_group(), device
        self._rank, self._hidden = mesh.get_local_rank(), hidden
        schedule_stages = [self._stage(number, stage) for number, stage in sorted(stages.items())]
        kind = get_schedule_class(settings.schedule)
        is_multi = issubclass(kind, PipelineScheduleMulti)
        try:
            self._schedule = kind(
                schedule_stages if is_multi else schedule_stages[0],
                parts,
                loss_fn=lambda loss, _: loss,
                scale_grads=False,
            )
        except ValueError as error:
            raise InputError(
                f"{path}.gradient_accumulation_steps: {settings.schedule} over {mesh.size()} processes cannot have "
                f"{parts} micro-batches ({error})"
            ) from error

    @property
    def answers(self) -> bool:
        """Whether this rank has the last stage."""
        return self._homes[-1] == self._rank

    def _stage(self, number: int, stage: Stage) -> PipelineStage:
        hidden = torch.empty(self._hidden.shape, dtype=self._hidden.dtype, device="meta", requires_grad=True)
        loss = torch.empty((), device="meta", requires_grad=True)
        scheduled = PipelineStage(
            stage,
            number,
            len(self._homes),
            self._device,
            input_args=hidden if number else (),
            output_args=loss if stage.is_last else hidden,
            group=self._group,
        )
        scheduled.stage_index_to_group_rank = dict(enumerate(self._homes))
        return scheduled

    def gradients(self, parts: Sequence[MicroBatch]) -> Tensor:
        """Add up the losses' gradients in `grad`; return the losses' sum on the last stage's rank, 0 on others."""
        self._show(parts)
        losses: list[Tensor] = []
        no_targets: list[None] = [None] * len(parts)
        with _original_errors():
            self._schedule.step(
                arg_mbs=[()] * len(parts),
                kwarg_mbs=[{"part": number} for number in range(len(parts))],
                target_mbs=no_targets if self.answers else None,
                losses=losses if self.answers else None,
                return_outputs=False,
            )
        self._show([])
        if not losses:
            return torch.zeros((), device=self._device)
        return torch.stack([loss.detach() for loss in losses]).sum()

    def evaluate(self, part: MicroBatch) -> Tensor | None:
        """The result for a batch, without gradients, on the rank with the last stage; None on others."""
        self._show([part])
        result: Tensor | None = None
        hidden: Tensor | None = None
        with torch.no_grad():
            for number, rank in enumerate(self._homes):
                if rank != self._rank:
                    continue
                if number and self._homes[number - 1] != self._rank:
                    shape = (len(part.inputs), *self._hidden.shape[1:])
                    hidden = torch.empty(shape, dtype=self._hidden.dtype, device=self._device)
                    dist.recv(hidden, group=self._group, group_src=self._homes[number - 1])
                output: Tensor = self._stages[number](*([hidden] if number else []), part=0)
                if number + 1 == len(self._homes):
                    result = output
                elif self._homes[number + 1] != self._rank:
                    dist.send(output.contiguous(), group=self._group, group_dst=self._homes[number + 1])
                hidden = output
        self._show([])
        return result

    def _show(self, parts: Sequence[MicroBatch]) -> None:
        for stage in self._stages.values():
            stage.parts = parts


@contextmanager
def _original_errors() -> Iterator[None]:
    """Raise a stage's original error: torch wraps it in one with neither its class nor its message."""
    try:
        yield
    except RuntimeError as error:
        raise error.__cause__ or error  # noqa: B904  # `from` would make each the other's cause


def exchange_tied(parameters: Sequence[nn.Parameter], group: dist.ProcessGroup, peer: int) -> None:
    """Add up the gradients of parameters that this rank and another share.

    Args:
        parameters: in the same order on both ranks.
        group: the ranks of the pipeline.
        peer: the other rank in `group`.
    """
    for parameter in parameters:
        gradient = parameter.grad
        assert gradient is not None
        if isinstance(parameter, DTensor) and isinstance(gradient, DTensor):
            # One rank's operations may have replicated it where the other's left it sharded.
            parameter.grad = gradient = gradient.redistribute(placements=parameter.placements)
        gradient = local_tensor(gradient)
        peer_gradient = torch.empty_like(gradient)
        sends = dist.P2POp(dist.isend, gradient.contiguous(), group=group, group_peer=peer)
        for work in dist.batch_isend_irecv(
            [sends, dist.P2POp(dist.irecv, peer_gradient, group=group, group_peer=peer)]
        ):
            work.wait()
        gradient.add_(peer_gradient)
