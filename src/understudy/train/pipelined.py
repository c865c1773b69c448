"""A model trained in stages: each rank has some of the layers, and only the last stage has a loss.

A teacher has all of its layers on every rank, sharded over all of them. The ranks of a pipeline, which read the same
examples, divide its micro-batches among themselves, and the rank of the last stage gathers all outputs.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn

from understudy.data.loader import IGNORED
from understudy.models.buffers import unchanged_buffers
from understudy.models.outputs import States
from understudy.objectives.batch import Batch
from understudy.objectives.objective import Objective
from understudy.objectives.pieces import loss_in_pieces
from understudy.parallel.apply import Spread, reshard
from understudy.parallel.pipeline import exchange_tied
from understudy.parallel.stages import MicroBatch
from understudy.teachers.teacher import Teacher
from understudy.train.learning import Learner, Part, Reduce
from understudy.train.marks import mark
from understudy.train.optimizers import gradient_norm, scale_gradients
from understudy.train.staged import Staged


class Pipelined(Learner):
    """A learner with some of the layers on each rank.

    Args:
        staged: this rank's stages.
        held: this rank's part of the model.
        objective: its objective, a sum over positions without parameters.
        teachers: its teachers.
        spread: the distribution over ranks.
    """

    def __init__(
        self,
        staged: Staged,
        module: nn.Module,
        objective: Objective,
        teachers: Sequence[Teacher],
        spread: Spread,
    ) -> None:
        assert objective.by_position, "an objective that needs more than logits refuses pp"
        self._held = module
        self._staged, self._objective, self._teachers, self._spread = staged, objective, teachers, spread
        self._group, self._rank = spread.meshes.pp.get_group(), spread.meshes.pp.get_local_rank()
        self._width = staged.hidden.shape[0]

    def train(self, *, mode: bool) -> None:
        """Set each stage's mode."""
        for stage in self._staged.stages.values():
            stage.train(mode)

    def begin_step(self, step: int, steps: int) -> None:
        """Set the step of the objective."""
        self._objective.begin_step(step, steps, self._spread.device)

    def gradients(self, parts: Iterator[Part], count: int, targets: int, scale: float = 1.0) -> Tensor:
        """All micro-batches, in the order of the schedule."""
        full_parts = [self._filled(part) for part in parts]
        assert len(full_parts) == count
        batches = [self._local_batch(part) for part in full_parts]
        # By teacher and micro-batch; a teacher's list is empty on ranks without the last stage, which compute no loss.
        teacher_states = [self._states(teacher, batches) for teacher in self._teachers]
        # Gradients are averaged over the ranks that read different examples, the loss is summed over them.
        replicas = self._spread.meshes.gradient.size()
        micro_batches = []
        for index, (part, batch) in enumerate(zip(full_parts, batches, strict=True)):
            states = [by_batch[index] for by_batch in teacher_states if by_batch]
            loss_function = partial(self._loss, teachers=states, batch=batch, scale=replicas / targets * scale)
            forward = self._forward if part.counts else self._uncounted
            micro_batches.append(MicroBatch(batch.inputs, dict(batch.placed), loss_function, forward))
        with mark("backward"):  # and forward, which has separate marks in between
            loss = self._staged.pipeline.gradients(micro_batches) / (replicas * scale)
            for teacher in self._teachers:
                teacher.reshard()
            self._exchange()
        return loss

    @contextmanager
    def _forward(self) -> Iterator[None]:
        """The context in which a stage computes."""
        with mark("forward"), self._staged.context():
            yield

    @contextmanager
    def _uncounted(self) -> Iterator[None]:
        """The context in which a stage computes a micro-batch that does not count."""
        with unchanged_buffers(self._held), self._forward():
            yield

    def _local_batch(self, part: Part) -> Batch:
        """This rank's positions of a part."""
        inputs, labels, placed = self._spread.own_positions(part.inputs, part.labels, part.positions)
        return Batch(inputs, labels, part.mixed, part.indices, placed)

    def _filled(self, part: Part) -> Part:
        """A micro-batch padded to full width, as a pipeline requires. Padding has no targets."""
        mixed = part.mixed and part.mixed._replace(labels=self._filled_labels(part.mixed.labels, part.counts))
        labels, positions = self._filled_labels(part.labels, part.counts), part.positions
        positions = None if positions is None else self._repeated(positions)
        indices = None if part.indices is None else self._repeated(part.indices)
        return Part(self._repeated(part.inputs), labels, part.counts, mixed, positions, indices)

    def _repeated(self, tensor: Tensor) -> Tensor:
        missing = self._width - len(tensor)
        return torch.cat([tensor, tensor[:1].expand(missing, *tensor.shape[1:])]) if missing else tensor

    def _filled_labels(self, labels: Tensor, counts: bool) -> Tensor:
        labels, missing = labels if counts else torch.full_like(labels, IGNORED), self._width - len(labels)
        return torch.cat([labels, torch.full_like(labels[:1], IGNORED).expand(missing, *labels.shape[1:])])

    def _loss(self, student: States, *, teachers: Sequence[States], batch: Batch, scale: float) -> Tensor:
        return loss_in_pieces(self._objective, student, teachers, batch) * scale

    def _states(self, teacher: Teacher, batches: list[Batch]) -> list[States]:
        """A teacher's states of each micro-batch, on the rank of the last stage; empty on other ranks."""
        ranks, last = dist.get_world_size(self._group), self._staged.ends[1]
        states: list[States] = []
        for first in range(0, len(batches), ranks):
            # A rank with no micro-batch left repeats the last one: the others wait for its part of the teacher.
            batch = batches[min(first + self._rank, len(batches) - 1)]
            with mark("teacher"), self._staged.context():
                own_states = teacher.states(batch)
            gathered = [torch.empty_like(own_states.states) for _ in range(ranks)] if self._rank == last else None
            dist.gather(own_states.states.contiguous(), gathered, group=self._group, group_dst=last)
            states += [own_states._replace(states=tensor) for tensor in gathered or ()]
        return states[: len(batches)]

    def _exchange(self) -> None:
        first, last = self._staged.ends
        if first != last and self._rank in (first, last):
            exchange_tied(self._staged.shared_parameters, self._group, last if self._rank == first else first)

    def clip(self, limit: float | None) -> Tensor:
        """Clip all stages together; parameters that two of them share count once."""
        parameters = list(self._held.parameters())
        counted_elsewhere = (
            {id(parameter) for parameter in self._staged.shared_parameters}
            if self._rank != self._staged.ends[0]
            else set()
        )
        counted: list[nn.Parameter] = [parameter for parameter in parameters if id(parameter) not in counted_elsewhere]
        squared = gradient_norm(counted).square()
        dist.all_reduce(squared, group=self._group)
        norm = squared.sqrt()
        if limit is not None:
            scale_gradients(parameters, limit, norm)
        return norm

    def evaluate(
        self, inputs: Tensor, labels: Tensor, reduce: Reduce, positions: Tensor | None = None
    ) -> Tensor | None:
        """The result on the rank of the last stage, None on others."""
        inputs, labels, placed = self._spread.own_positions(inputs, labels, positions)
        return self._staged.pipeline.evaluate(
            MicroBatch(inputs, placed, lambda states: reduce(states, labels), self._staged.context)
        )

    def reshard(self) -> None:
        """Free all but the shards."""
        for stage in self._staged.stages.values():
            reshard(stage)
