import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.jobs.specs import with_resources
from understudy.agent.heartbeat import HeartbeatWriter
from understudy.jobs.specification import JobSpec


def supervised(job: JobSpec, hang: float) -> JobSpec:
    spec = replace(with_resources(job, hang_timeout=hang), supervised=True)
    Path(spec.folder).mkdir(parents=True, exist_ok=True)
    spec.rank_logs.mkdir(parents=True, exist_ok=True)
    return spec


def test_the_stacks_of_a_rank_that_hangs_are_written(job: JobSpec) -> None:
    spec = supervised(job, 0.2)
    heartbeat = HeartbeatWriter(spec, 1)
    heartbeat("training", 3)
    for _ in range(20):
        time.sleep(1)  # it stands here: stacks of a thread that runs cannot be read safely
        if spec.stacks(1).read_text():
            break
    heartbeat.stop()
    assert "test_the_stacks_of_a_rank_that_hangs_are_written" in spec.stacks(1).read_text()


def test_a_phase_is_logged_once(job: JobSpec, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    heartbeat = HeartbeatWriter(supervised(job, 1000.0), 1)
    for step in range(3):
        heartbeat("training", step)
    heartbeat.stop()
    assert caplog.messages.count("training") == 1
