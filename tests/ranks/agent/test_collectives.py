"""Ranks that time their all-reduces."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.ranks.pool import Ranks
from tests.unit.jobs.specs import job_spec
from understudy.errors import InputError
from understudy.jobs import attempts
from understudy.jobs.collectives import Collectives, read
from understudy.jobs.specification import JobSpec

SIZES = (4096, 65536)


def measured(spec: JobSpec) -> None:
    from understudy.agent import collectives
    from understudy.agent.heartbeat import HeartbeatWriter
    from understudy.agent.surroundings import Surroundings

    assert isinstance(spec.payload, Collectives)
    rank = int(os.environ["RANK"])
    collectives.measure(spec, spec.payload, Surroundings(spec, HeartbeatWriter(spec, rank)))


@pytest.fixture
def spec(tmp_path: Path) -> JobSpec:
    job = replace(job_spec(tmp_path), role="collectives", payload=Collectives(sizes=SIZES), supervised=True)
    job.rank_logs.mkdir(parents=True)
    return job


def test_ranks_leave_a_timing_for_each_size(spec: JobSpec, ranks: Ranks) -> None:
    ranks.run(2, measured, spec)
    attempt = attempts.latest(Path(spec.folder))
    assert attempt is not None
    timings = read(attempt / "output")
    assert [timing.size for timing in timings] == list(SIZES)
    assert all(timing.seconds > 0 for timing in timings)


def test_a_specification_of_it_comes_back_from_its_file(spec: JobSpec) -> None:
    assert JobSpec.read(spec.write()) == spec
    assert spec.payload.reads == {}
    assert spec.payload.reading({}) == spec.payload


def test_a_gpu_that_torch_does_not_see_is_the_image_s_or_the_node_s_fault(spec: JobSpec) -> None:
    from understudy.agent import collectives

    with pytest.raises(InputError, match="torch sees none in its pods"):
        collectives._device(replace(spec, device="cuda"))
