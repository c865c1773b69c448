"""A rank that hangs leaves word of its collectives. The others of a world of one are nobody, so no peer is needed."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import distributed
from torch._C import _distributed_c10d

from understudy.agent.flight_recorder import FlightRecorder, collectives


@pytest.fixture
def world(tmp_path: Path) -> Iterator[None]:
    distributed.init_process_group(
        "gloo", store=distributed.FileStore(str(tmp_path / "meeting"), 1), rank=0, world_size=1
    )
    distributed.all_reduce(torch.ones(3))
    yield
    distributed.destroy_process_group()
    _distributed_c10d._reset_fr_trace()  # it would outlive the group


def written(path: Path) -> list[str]:
    end = time.monotonic() + 20
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.01)
    return [entry["profiling_name"] for entry in json.loads(path.read_text())["gloo"]["entries"]]


def test_the_last_collectives_of_a_rank_that_hangs_are_written(world: None, tmp_path: Path) -> None:
    watch = FlightRecorder(tmp_path / "c.json", 0.05)
    watch.start()
    assert "gloo:all_reduce" in written(tmp_path / "c.json")
    watch.stop()
    watch.join(20)
    assert not watch.is_alive()


def test_of_a_rank_that_moves_nothing_is_written(world: None, tmp_path: Path) -> None:
    watch = FlightRecorder(tmp_path / "c.json", 1000.0)
    watch.start()
    watch.restart_timer()
    watch.stop()
    watch.join(20)
    assert not (tmp_path / "c.json").exists()


def test_before_ranks_have_met_there_is_nothing_to_say() -> None:
    assert collectives() == {}


def test_dumps_of_an_earlier_hang_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text("{}")
    watch = FlightRecorder(tmp_path / "c.json", 0.01)
    watch.start()
    end = time.monotonic() + 20
    while (tmp_path / "c.json").exists() and time.monotonic() < end:
        time.sleep(0.01)
    watch.stop()
    assert not (tmp_path / "c.json").exists()


def test_a_full_volume_is_reported(world: None, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    watch = FlightRecorder(tmp_path / "not there" / "c.json", 0.01)
    watch.start()
    end = time.monotonic() + 20
    while "cannot be written" not in caplog.text and time.monotonic() < end:
        time.sleep(0.01)
    watch.stop()
    assert "No such file or directory" in caplog.text
