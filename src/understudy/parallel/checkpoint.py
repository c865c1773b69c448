"""Checkpoints: sharded, written while training goes on, complete or not there, loaded onto any degrees.

A checkpoint is written aside and renamed to `step-N` once every rank's part and the metadata are flushed. All paths
lie below the step's lease: after somebody else took over, they are gone, and so is the writer's power to do harm.
"""

import logging
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from io import IOBase
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save, save
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.checkpoint.storage import WriteResult
from torch.optim import Optimizer

from understudy.errors import Fenced, UnderstudyError, disk_errors
from understudy.parallel.checksums import is_damaged, write_checksums
from understudy.parallel.own_state import load_own, own_tensors

log = logging.getLogger(__name__)

KEPT = 2
PROGRESS = "progress.json"
OPTIONS = StateDictOptions(flatten_optimizer_state_dict=True)
"""The optimiser's state by parameter: in which groups they are depends on the degrees."""


class Checkpoints:
    """The checkpoints of one training job.

    Args:
        folder: in which they lie.
        model: what this rank holds of it.
        optimizer: of that.
        copies: the ranks with the same layers; default: all.
        own: what every rank has for itself.
    """

    def __init__(
        self,
        folder: Path,
        model: nn.Module,
        optimizer: Optimizer,
        copies: dist.ProcessGroup | None = None,
        own: Sequence[Stateful] = (),
    ) -> None:
        self._folder, self._copies, self._own = folder, copies, own
        self._model, self._optimizer = model, optimizer
        # A group of its own, on the CPU: async_save asks for one, and the collectives of its thread must not meet those
        # of the training.
        group = dist.new_group(backend="gloo")
        assert isinstance(group, dist.ProcessGroup)
        self._group = group
        self._leads = dist.get_rank() == 0
        if self._leads:  # later it could be a successor's: NFS leads one who was away to its folder for a moment
            _remove(folder.glob(".writing-*"))
        self._pending: tuple[Future[Any], Path, int] | None = None

    def latest(self) -> int | None:
        """The step of the newest checkpoint that is as it was written, the same answer on every rank.

        One that is damaged is removed, and said.
        """
        # The first rank's list counts. Ranks of other nodes may see an older one, and would load another step than it.
        found: list[Any] = [sorted(map(_step, self._folder.glob("step-*")), reverse=True)]
        dist.broadcast_object_list(found, 0, group=self._group)
        steps: list[int] = found[0]
        return next((step for step in steps if not self._is_damaged(f"step-{step}")), None)

    def _is_damaged(self, name: str) -> bool:
        """Whether a rank finds, in its share of a folder's files, other bytes than were written; it is then removed."""
        folder = self._folder / name
        answer = torch.tensor(is_damaged(folder, dist.get_rank(), dist.get_world_size()))
        dist.all_reduce(answer, dist.ReduceOp.MAX, group=self._group)
        if answer.item() and self._leads:
            log.warning("%s: its files are not as they were written; it is removed", folder)
            _remove([folder])
        return bool(answer.item())

    def load(self, step: int) -> str:
        """Load a checkpoint into model and optimiser.

        Returns:
            What save() was given as progress.
        """
        path = self._folder / f"step-{step}"
        model, optimizer = get_state_dict(self._model, self._optimizer, options=OPTIONS)
        state: dict[str, Any] = {"model": model, "optimizer": optimizer}
        load(state, checkpoint_id=path, process_group=self._group)
        model, optimizer = state["model"], state["optimizer"]
        set_state_dict(
            self._model, self._optimizer, model_state_dict=model, optim_state_dict=optimizer, options=OPTIONS
        )
        load_own(self._own, path, self._group)
        return (path / PROGRESS).read_text()

    def save(self, step: int, progress: str) -> None:
        """Begin to write a checkpoint; the one before is finished first.

        Args:
            step: how many steps were taken.
            progress: what else is needed to go on, as JSON; the first rank's counts.

        Raises:
            Fenced: another run has taken over.
            UnderstudyError: the disk is full.
        """
        self.finish()  # async_save copies the whole state: one copy at a time
        self._align_buffers()
        aside = self._aside(step)
        model, optimizer = get_state_dict(self._model, self._optimizer, options=OPTIONS)
        state = {"model": model, "optimizer": optimizer, **own_tensors(self._own)}
        future = async_save(state, storage_writer=_Writer(aside, progress), process_group=self._group)
        assert isinstance(future, Future)
        self._pending = future, aside, step

    def save_best(self, step: int) -> None:
        """Keep the model's weights of this step, and of no other, for load_best(); training waits for it.

        Raises:
            Fenced: another run has taken over.
            UnderstudyError: the disk is full.
        """
        self._align_buffers()
        target = self._folder / f"best-{step}"
        aside = self._aside(step)
        state = get_model_state_dict(self._model)
        with disk_errors(self._folder):
            try:
                save(state, storage_writer=_Writer(aside, "{}"), process_group=self._group)
            except CheckpointException as error:
                raise _cause(error) from error
            if self._leads:
                _remove([target])  # of the same step, before a kill
                _rename(aside, target)
                _remove(set(self._folder.glob("best-*")) - {target})
        dist.barrier(self._group)

    def load_best(self, step: int) -> None:
        """Put the weights into the model that save_best() has kept.

        Raises:
            UnderstudyError: they are damaged.
        """
        if self._is_damaged(f"best-{step}"):
            raise UnderstudyError(
                f"{self._folder}: the weights of the best step, {step}, are not as they were written, and are removed. "
                "Remove the folder of checkpoints, and run again; or set keep_best to false"
            )
        state = get_model_state_dict(self._model)
        load(state, checkpoint_id=self._folder / f"best-{step}", process_group=self._group)
        set_model_state_dict(self._model, state)

    def _align_buffers(self) -> None:
        """Give all ranks the first one's buffers (running means), as DDP does before a step and nobody under fsdp.

        Of tensors that are not sharded a checkpoint holds some rank's; the finished model has the first rank's.
        """
        if dist.get_world_size(self._copies) > 1:
            for buffer in self._model.buffers():
                dist.broadcast(buffer, group=self._copies, group_src=0)

    def _aside(self, step: int) -> Path:
        """A new folder with a name that no other attempt has, the same on every rank."""
        name = [f".writing-{step}-{secrets.token_hex(4)}"]
        dist.broadcast_object_list(name, 0, group=self._group)
        aside = self._folder / name[0]
        if self._leads:
            with disk_errors(aside):
                _make(aside)
        dist.barrier(self._group)  # nobody writes before the folder is there: _Files makes none
        return aside

    def finish(self) -> None:
        """Wait for the checkpoint that is being written, and put it in place."""
        if self._pending is None:
            return
        future, aside, step = self._pending
        self._pending = None
        with disk_errors(self._folder):
            _outcome(future)
            if self._leads:
                self._put_in_place(aside, step)
        dist.barrier(self._group)

    def finish_if_written(self) -> None:
        """Put the checkpoint in place as soon as it is written, so that a kill costs as little as possible."""
        # Without a barrier, since the others are in the middle of a step: that the future is done on the first rank
        # means that all have written, because its metadata goes last. finish() then only finds the checkpoint in place.
        if self._leads and self._pending and self._pending[0].done():
            future, aside, step = self._pending
            with disk_errors(self._folder):
                _outcome(future)
                if aside.exists():
                    self._put_in_place(aside, step)

    def _put_in_place(self, aside: Path, step: int) -> None:
        target = self._folder / f"step-{step}"
        if target.exists():  # finish_if_written() was here
            return
        _rename(aside, target)
        written = sorted(self._folder.glob("step-*"), key=_step)
        _remove(written[:-KEPT])


def _step(folder: Path) -> int:
    return int(folder.name.removeprefix("step-"))


def _remove(folders: Iterable[Path]) -> None:
    for path in folders:
        shutil.rmtree(path, ignore_errors=True)


def _rename(aside: Path, target: Path) -> None:
    try:
        os.rename(aside, target)
    except FileNotFoundError as error:
        raise Fenced("another run has taken this step over") from error


def _make(path: Path) -> None:
    try:
        path.mkdir()
    except FileNotFoundError as error:
        raise Fenced("another run has taken this step over") from error


class _Writer(FileSystemWriter):
    """Writes progress.json and checksums too, in the background and flushed as the rest is."""

    def __init__(self, folder: Path, progress: str) -> None:
        super().__init__(folder, single_file_per_rank=True)
        self.fs = _Files()
        self._folder, self._progress = folder, progress

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """On the first rank, when all have written their part."""
        with (self._folder / PROGRESS).open("w") as stream:
            stream.write(self._progress)
            stream.flush()
            os.fsync(stream.fileno())
        super().finish(metadata, results)
        write_checksums(self._folder)


class _Files(FileSystem):
    """Torch's own would make a lost lease's folder again, and keep the system's word on a full disk to themselves."""

    def mkdir(self, path: str | os.PathLike[str]) -> None:
        """Make nothing: save() made the folder, and if it is gone it stays gone."""

    @contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[IOBase]:
        """A file. When it cannot be written, torch.save raises what that did to its zip archive."""
        with super().create_stream(path, mode) as stream:
            try:
                yield stream
            except RuntimeError as error:
                if isinstance(error.__context__, OSError):
                    raise error.__context__ from error
                raise


def _outcome(future: Future[Any]) -> None:
    # torch wraps what each rank met. Of them the one that explains the others comes first: a path that is gone means
    # that the lease is; then what the system says of the disk.
    try:
        future.result()
    except CheckpointException as error:
        raise _cause(error) from error


def _cause(error: CheckpointException) -> BaseException:
    causes = [wrapped[0] for wrapped in error.failures.values()]
    if any(isinstance(cause, FileNotFoundError) for cause in causes):
        return Fenced("another run has taken this step over")
    return next((cause for cause in causes if isinstance(cause, OSError)), error)
