"""Checkpoints: sharded, asynchronous, atomic, and loadable onto any degrees.

The state is copied while the next step computes its gradients, which changes no weight; copied() waits for the copy
before the optimiser's step. A checkpoint is written to a temporary folder and renamed to `step-N` once every rank's
part and the metadata are flushed. All paths lie below the step's lease: after another run has taken over, they are
gone, so that a stale writer can do no harm.
"""

import logging
import os
import secrets
import shutil
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import AsyncSaveResponse, async_save, save
from torch.distributed.checkpoint.stateful import Stateful
from torch.optim import Optimizer

from understudy.errors import Fenced, UnderstudyError, disk_errors
from understudy.parallel.checkpoint_files import PROGRESS, Writer, cause
from understudy.parallel.checksums import is_damaged
from understudy.parallel.rank_state import load_rank_tensors, rank_tensors
from understudy.parallel.staging import Stager, with_buffers_copied

log = logging.getLogger(__name__)

RETAINED = 2
OPTIONS = StateDictOptions(flatten_optimizer_state_dict=True)
"""Optimiser state is keyed by parameter, since parameter groups depend on the degrees."""


@dataclass(frozen=True)
class _Pending:
    """A checkpoint that is being copied and written."""

    step: int
    temporary: Path
    copied: Future[None]
    written: Future[Any]

    def outcome(self) -> None:
        """Wait until it is written.

        Raises:
            Fenced: another run has taken over.
        """
        try:
            self.written.result()
        except CheckpointException as error:
            raise cause(error) from error


class Checkpoints:
    """The checkpoints of one training job.

    Args:
        folder: their folder.
        model: this rank's part.
        optimizer: the optimiser of that part.
        copies: the ranks with the same layers; default: all.
        rank_states: per-rank state.
    """

    def __init__(
        self,
        folder: Path,
        model: nn.Module,
        optimizer: Optimizer,
        copies: dist.ProcessGroup | None = None,
        rank_states: Sequence[Stateful] = (),
    ) -> None:
        self._folder, self._copies, self._rank_states = folder, copies, rank_states
        self._model, self._optimizer = model, optimizer
        # A separate group, on the CPU: async_save requires one, and its thread's collectives must not match those of
        # the training.
        group = dist.new_group(backend="gloo")
        assert isinstance(group, dist.ProcessGroup)
        self._group = group
        self._stager = Stager(next(model.parameters()).device)
        self._leads = dist.get_rank() == 0
        if self._leads:  # only now: after a pause NFS may briefly resolve this path to a successor's folder
            _remove(folder.glob(".writing-*"))
        self._pending: _Pending | None = None

    def latest(self) -> int | None:
        """The step of the newest intact checkpoint, the same on every rank.

        Damaged ones are removed with a warning.
        """
        # The first rank's list counts. Ranks of other nodes may see an older one, and would load another step.
        broadcast: list[Any] = [sorted(map(_step, self._folder.glob("step-*")), reverse=True)]
        dist.broadcast_object_list(broadcast, 0, group=self._group)
        steps: list[int] = broadcast[0]
        return next((step for step in steps if not self._is_damaged(f"step-{step}")), None)

    def _is_damaged(self, name: str) -> bool:
        """Check a folder's files, a share of them on each rank, and remove the folder if any is damaged."""
        folder = self._folder / name
        answer = torch.tensor(is_damaged(folder, dist.get_rank(), dist.get_world_size()))
        dist.all_reduce(answer, dist.ReduceOp.MAX, group=self._group)
        if answer.item() and self._leads:
            log.warning("%s: its files are damaged; it is removed", folder)
            _remove([folder])
        return bool(answer.item())

    def load(self, step: int) -> str:
        """Load a checkpoint into model and optimiser.

        Returns:
            The `progress` passed to save().
        """
        path = self._folder / f"step-{step}"
        model, optimizer = get_state_dict(self._model, self._optimizer, options=OPTIONS)
        state: dict[str, Any] = {"model": with_buffers_copied(self._model, model), "optimizer": optimizer}
        load(state, checkpoint_id=path, process_group=self._group)
        model, optimizer = state["model"], state["optimizer"]
        set_state_dict(
            self._model, self._optimizer, model_state_dict=model, optim_state_dict=optimizer, options=OPTIONS
        )
        load_rank_tensors(self._rank_states, path, self._group)
        return (path / PROGRESS).read_text()

    def save(self, step: int, progress: str) -> None:
        """Start writing a checkpoint, after the previous one is finished.

        Args:
            step: the number of steps taken.
            progress: further state to resume from, as JSON; the first rank's counts.

        Raises:
            Fenced: another run has taken over.
            UnderstudyError: the disk is full.
        """
        self.finish()  # each checkpoint copies the whole state: one at a time
        self._align_buffers()
        temporary = self._create_temporary(step)
        model, optimizer = get_state_dict(self._model, self._optimizer, options=OPTIONS)
        state = {
            "model": with_buffers_copied(self._model, model),
            "optimizer": optimizer,
            **rank_tensors(self._rank_states),
        }
        writer = Writer(temporary, progress)
        response = async_save(state, storage_writer=writer, process_group=self._group, async_stager=self._stager)
        assert isinstance(response, AsyncSaveResponse)
        self._pending = _Pending(step, temporary, response.staging_completion, response.upload_completion)

    def copied(self) -> None:
        """Wait until save() has copied the state, which must not change before."""
        if self._pending:
            self._pending.copied.result()

    def save_best(self, step: int) -> None:
        """Save the model's weights for load_best(), in place of an earlier step's; training waits for it.

        Raises:
            Fenced: another run has taken over.
            UnderstudyError: the disk is full.
        """
        self.finish()  # its thread's collectives must not match those of this thread
        self._align_buffers()
        target = self._folder / f"best-{step}"
        temporary = self._create_temporary(step)
        state = get_model_state_dict(self._model)
        with disk_errors(self._folder):
            try:
                save(state, storage_writer=Writer(temporary, "{}"), process_group=self._group)
            except CheckpointException as error:
                raise cause(error) from error
            if self._leads:
                _remove([target])  # the same step's, from before a kill
                _rename(temporary, target)
                _remove(set(self._folder.glob("best-*")) - {target})
        dist.barrier(self._group)

    def load_best(self, step: int) -> None:
        """Load the weights from save_best() into the model.

        Raises:
            UnderstudyError: they are damaged.
        """
        if self._is_damaged(f"best-{step}"):
            raise UnderstudyError(
                f"{self._folder}: the weights of the best step, {step}, are damaged, and are removed. "
                "Remove the folder of checkpoints, and run again; or set keep_best to false"
            )
        state = get_model_state_dict(self._model)
        load(state, checkpoint_id=self._folder / f"best-{step}", process_group=self._group)
        set_model_state_dict(self._model, state)

    def _align_buffers(self) -> None:
        """Broadcast the first rank's buffers (running means), as DDP does before a step and fully_shard never.

        A checkpoint stores unsharded tensors of an arbitrary rank; the finished model has the first rank's.
        """
        if dist.get_world_size(self._copies) > 1:
            for buffer in self._model.buffers():
                dist.broadcast(buffer, group=self._copies, group_src=0)

    def _create_temporary(self, step: int) -> Path:
        """Create a temporary folder with a unique name, the same on every rank."""
        name = [f".writing-{step}-{secrets.token_hex(4)}"]
        dist.broadcast_object_list(name, 0, group=self._group)
        temporary = self._folder / name[0]
        if self._leads:
            with disk_errors(temporary):
                _make(temporary)
        dist.barrier(self._group)  # no rank may write before the folder exists: _Files creates none
        return temporary

    def finish(self) -> None:
        """Wait until the pending checkpoint is written, and rename it."""
        if self._pending is None:
            return
        pending, self._pending = self._pending, None
        with disk_errors(self._folder):
            pending.outcome()
            if self._leads:
                self._publish(pending.temporary, pending.step)
        dist.barrier(self._group)

    def finish_if_written(self) -> None:
        """Rename the pending checkpoint as soon as it is written, so that a kill costs as little as possible."""
        # Without a barrier, since other ranks are in the middle of a step: the future is done on the first rank only
        # when all have written, because metadata goes last. finish() then finds the checkpoint renamed.
        pending = self._pending
        if self._leads and pending and pending.written.done():
            with disk_errors(self._folder):
                pending.outcome()
                if pending.temporary.exists():
                    self._publish(pending.temporary, pending.step)

    def _publish(self, temporary: Path, step: int) -> None:
        target = self._folder / f"step-{step}"
        if target.exists():  # renamed by finish_if_written()
            return
        _rename(temporary, target)
        written = sorted(self._folder.glob("step-*"), key=_step)
        _remove(written[:-RETAINED])


def _step(folder: Path) -> int:
    return int(folder.name.removeprefix("step-"))


def _remove(folders: Iterable[Path]) -> None:
    for path in folders:
        shutil.rmtree(path, ignore_errors=True)


def _rename(temporary: Path, target: Path) -> None:
    try:
        os.rename(temporary, target)
    except FileNotFoundError as error:
        raise Fenced("another run has taken this step over") from error


def _make(path: Path) -> None:
    try:
        path.mkdir()
    except FileNotFoundError as error:
        raise Fenced("another run has taken this step over") from error
