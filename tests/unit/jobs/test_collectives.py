from pathlib import Path

import pytest

from understudy.errors import UnderstudyError
from understudy.jobs.collectives import FILE, SIZES, Timing, read, table, write


def test_bandwidths_are_those_of_nccl_tests() -> None:
    """Its doc/PERFORMANCE.md: busbw of an all-reduce is algbw times 2 (n - 1) / n."""
    timing = Timing(8 * 10**9, 2.0)
    assert timing.algorithm_bandwidth == 4e9
    assert timing.bus_bandwidth(2) == 4e9
    assert timing.bus_bandwidth(8) == pytest.approx(7e9)


def test_timings_come_back_as_they_were_left(tmp_path: Path) -> None:
    timings = [Timing(8192, 0.001), Timing(2**28, 0.5)]
    write(tmp_path, timings)
    assert read(tmp_path) == timings
    assert table(timings, 2)[1:] == [
        "    8 KiB     1.000 ms    0.008 GB/s    0.008 GB/s",
        "  256 MiB   500.000 ms    0.537 GB/s    0.537 GB/s",
    ]


@pytest.mark.parametrize("content", [None, "", "[{}]", '[{"size": 1, "seconds": "many"}]'])
def test_what_is_no_timing_is_named(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / FILE).write_text(content)
    with pytest.raises(
        UnderstudyError, match=r"collectives\.json: the ranks wrote no timings; their logs have the reason"
    ):
        read(tmp_path)


def test_sizes_go_from_what_latency_decides_to_what_bandwidth_decides() -> None:
    assert (SIZES[0], SIZES[-1]) == (8 * 1024, 256 * 2**20)
