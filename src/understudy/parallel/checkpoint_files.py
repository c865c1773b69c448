"""Writing of a checkpoint's files: flushed, with checksums, and only into an existing folder.

torch wraps each rank's error; cause() finds the one to report.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import IOBase
from pathlib import Path

from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.storage import WriteResult

from understudy.errors import Fenced
from understudy.parallel.checksums import write_checksums

PROGRESS = "progress.json"


class Writer(FileSystemWriter):
    """Also writes progress.json and checksums, flushed and in the background like the rest."""

    def __init__(self, folder: Path, progress: str) -> None:
        super().__init__(folder, single_file_per_rank=True)
        self.fs = _Files()
        self._folder, self._progress = folder, progress

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Called on the first rank after all ranks have written."""
        with (self._folder / PROGRESS).open("w") as stream:
            stream.write(self._progress)
            stream.flush()
            os.fsync(stream.fileno())
        super().finish(metadata, results)
        write_checksums(self._folder)


class _Files(FileSystem):
    """Unlike torch's class, it never recreates a lost lease's folder, and raises the system's error on a full disk."""

    def mkdir(self, path: str | os.PathLike[str]) -> None:
        """Do nothing: save() created the folder, and if it is gone it stays gone."""

    @contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[IOBase]:
        """Open a file. If it cannot be written, torch.save raises a RuntimeError about its zip archive instead."""
        with super().create_stream(path, mode) as stream:
            try:
                yield stream
            except RuntimeError as error:
                if isinstance(error.__context__, OSError):
                    raise error.__context__ from error
                raise


def cause(error: CheckpointException) -> BaseException:
    """The root cause of the ranks' errors.

    Fenced if a path is gone, since the lease is then lost; else the system's error on the disk; else the error itself.
    """
    failures = [wrapped[0] for wrapped in error.failures.values()]
    if any(isinstance(failure, FileNotFoundError) for failure in failures):
        return Fenced("another run has taken this step over")
    return next((failure for failure in failures if isinstance(failure, OSError)), error)
