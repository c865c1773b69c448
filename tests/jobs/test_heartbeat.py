import time
from dataclasses import replace
from pathlib import Path

import pytest

from understudy.jobs.heartbeat import Pulse
from understudy.jobs.specification import JobSpec


def supervised(job: JobSpec, hang: float) -> JobSpec:
    spec = replace(job, supervised=True, hang_timeout=hang)
    Path(spec.folder).mkdir(parents=True, exist_ok=True)
    Path(spec.logs).mkdir(parents=True, exist_ok=True)
    return spec


def test_the_stacks_of_a_rank_that_hangs_are_written(job: JobSpec) -> None:
    spec = supervised(job, 0.2)
    pulse = Pulse(spec, 1)
    pulse("training", 3)
    for _ in range(20):
        time.sleep(1)  # it stands here: stacks of a thread that runs cannot be read safely
        if spec.stacks(1).read_text():
            break
    pulse.stop()
    assert "test_the_stacks_of_a_rank_that_hangs_are_written" in spec.stacks(1).read_text()


def test_a_phase_is_said_once(job: JobSpec, capsys: pytest.CaptureFixture[str]) -> None:
    pulse = Pulse(supervised(job, 1000.0), 1)
    for step in range(3):
        pulse("training", step)
    pulse.stop()
    assert capsys.readouterr().out.count(" training\n") == 1
