"""How a checkpoint's files are written: flushed, with checksums, and in no folder but the one that is there.

What went wrong is told by its cause: torch wraps what each rank met.
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


def cause(error: CheckpointException) -> BaseException:
    """What explains the others of what ranks met: that a path is gone, since the lease is then; what the system says of
    the disk; else the error itself.
    """
    met = [wrapped[0] for wrapped in error.failures.values()]
    if any(isinstance(one, FileNotFoundError) for one in met):
        return Fenced("another run has taken this step over")
    return next((one for one in met if isinstance(one, OSError)), error)
