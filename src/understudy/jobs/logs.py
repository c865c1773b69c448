"""Following ranks' logs from stored offsets, so that a new launcher neither loses nor repeats a line."""

import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from understudy.jobs.files import opened
from understudy.jobs.specification import JobSpec
from understudy.store.files import read_json, write_json

log = logging.getLogger(__name__)

TAIL = 30
MOST = 2**20  # bytes of a rank's log per read
NAME = "jobs.log"


class RunLog:
    """The log of a run's jobs, for processes that follow the run from its folder."""

    def __init__(self, logs: Path) -> None:
        self._path = logs / NAME
        self._offset = self._path.stat().st_size if self._path.exists() else 0

    def write(self, line: str) -> None:
        """Add a line, and log it."""
        log.info("%s", line)
        with self._path.open("a") as stream:
            stream.write(f"{line}\n")

    def new(self) -> Iterator[str]:
        """Lines added since the last call; a line whose consumer failed is yielded again."""
        if not self._path.exists():
            return
        with self._path.open("rb") as stream:
            stream.seek(self._offset)
            text = stream.read()
        for line in text[: text.rfind(b"\n") + 1].splitlines(keepends=True):
            yield line.decode(errors="replace").rstrip("\r\n")
            self._offset += len(line)


class RankLogs:
    """The logs of a job's ranks, from the previous launcher's offsets."""

    def __init__(self, spec: JobSpec, report: Callable[[str], None]) -> None:
        self._spec, self._report = spec, report
        self._offsets_path = Path(spec.logs) / f".{spec.role}-followed.json"
        offsets = read_json(self._offsets_path) or {}
        self._offsets = {int(rank): int(offset) for rank, offset in offsets.items()}

    def follow(self, nodes: Mapping[int, str], end: bool = False) -> None:
        """Emit every new complete line, prefixed with the rank's node and number.

        Args:
            nodes: node names by rank.
            end: no more lines will come: emit an incomplete last line too.
        """
        for rank in range(self._spec.world_size):
            while lines := self._added(rank, end):
                try:
                    for line in lines:
                        self._report(f"[{nodes.get(rank, '?')} rank {rank}] {line.decode(errors='replace').rstrip()}")
                        self._offsets[rank] = self._offsets.get(rank, 0) + len(line)
                finally:  # even if this pod is evicted meanwhile
                    write_json(self._offsets_path, self._offsets)
                if not end:
                    break

    def _added(self, rank: int, end: bool) -> list[bytes]:
        try:
            with opened(self._spec.log(rank)) as stream:
                stream.seek(self._offsets.get(rank, 0))
                text = stream.read(MOST)
        except FileNotFoundError:
            return []
        complete_lines = text[: text.rfind(b"\n") + 1]
        if not complete_lines and (end or len(text) == MOST):
            complete_lines = text
        return complete_lines.splitlines(keepends=True)

    def tail(self, rank: int) -> list[str]:
        """A rank's last lines."""
        try:
            with opened(self._spec.log(rank)) as stream:
                stream.seek(max(0, stream.seek(0, 2) - 2**14))
                return stream.read().decode(errors="replace").splitlines()[-TAIL:]
        except FileNotFoundError:
            return []
