"""A benchmark of collectives: its parameters, and the timings of its ranks in nccl-tests' terms."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from understudy.errors import UnderstudyError

SIZES = tuple(8 * 1024 * 8**power for power in range(6))
"""Bytes of the buffers: 8 KiB to 256 MiB."""
FILE = "collectives.json"


@dataclass(frozen=True, kw_only=True)
class Collectives:
    """All-reduces of several sizes between all ranks; the result is timings."""

    kind: Literal["collectives"] = "collectives"
    sizes: tuple[int, ...] = SIZES
    """Bytes of each buffer; float32, hence multiples of 4."""

    @property
    def reads(self) -> dict[str, str]:
        """The folders that ranks read: none."""
        return {}

    def reading(self, copies: Mapping[str, str]) -> "Collectives":
        """The same work: there are no folders to replace."""
        del copies
        return self


@dataclass(frozen=True)
class Timing:
    """Duration of an all-reduce: the median of several, each timed by its slowest rank."""

    size: int
    """Bytes of the buffer on every rank."""
    seconds: float

    @property
    def algorithm_bandwidth(self) -> float:
        """Buffer bytes per second: algbw of nccl-tests."""
        return self.size / self.seconds

    def bus_bandwidth(self, ranks: int) -> float:
        """Bytes per second that each rank's link carried at least: busbw, comparable with the fabric's bandwidth."""
        return self.algorithm_bandwidth * 2 * (ranks - 1) / ranks


_TIMINGS = TypeAdapter(list[Timing])


def write(folder: Path, timings: Iterable[Timing]) -> None:
    """Write the timings into a folder."""
    (folder / FILE).write_bytes(_TIMINGS.dump_json(list(timings)))


def read(folder: Path) -> list[Timing]:
    """Read the timings in a folder.

    Raises:
        UnderstudyError: they are missing or malformed.
    """
    try:
        return _TIMINGS.validate_json((folder / FILE).read_bytes())
    except (OSError, ValidationError) as error:
        raise UnderstudyError(f"{folder / FILE}: the ranks wrote no timings; their logs have the reason") from error


def table(timings: Iterable[Timing], ranks: int) -> list[str]:
    """The timings as lines of text."""
    lines = [f"{'size':>9} {'time':>12} {'algbw':>13} {'busbw':>13}"]
    for timing in timings:
        size = f"{timing.size // 2**20} MiB" if timing.size >= 2**20 else f"{timing.size // 2**10} KiB"
        algbw, busbw = timing.algorithm_bandwidth / 1e9, timing.bus_bandwidth(ranks) / 1e9
        lines.append(f"{size:>9} {timing.seconds * 1e3:>9.3f} ms {algbw:>8.3f} GB/s {busbw:>8.3f} GB/s")
    return lines
