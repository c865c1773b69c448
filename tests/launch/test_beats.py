from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from understudy.launch.beats import Pulse
from understudy.launch.spec import JobSpec


@pytest.fixture
def hanging(job: JobSpec) -> Iterator[tuple[Pulse, JobSpec]]:
    """A rank's signs of life, none of which is in time."""
    spec = replace(job, supervised=True, hang=0.05)
    Path(spec.folder).mkdir(parents=True, exist_ok=True)
    Path(spec.logs).mkdir(parents=True, exist_ok=True)
    pulse = Pulse(spec, 1)
    yield pulse, spec
    pulse.stop()


def test_the_stacks_of_a_rank_that_hangs_are_written(hanging: tuple[Pulse, JobSpec]) -> None:
    pulse, spec = hanging
    pulse("training", 3)
    while "test_the_stacks_of_a_rank_that_hangs_are_written" not in spec.stacks(1).read_text():
        pass  # it stands here


def test_a_phase_is_said_once(hanging: tuple[Pulse, JobSpec], capsys: pytest.CaptureFixture[str]) -> None:
    pulse, _ = hanging
    for step in range(3):
        pulse("training", step)
    assert capsys.readouterr().out.count(" training\n") == 1
