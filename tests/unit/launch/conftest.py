"""Fixtures shared by tests of jobs in a cluster."""

from dataclasses import replace

import pytest

from tests.unit.jobs.specs import with_resources
from understudy.jobs.specification import JobSpec


@pytest.fixture
def three_nodes(job: JobSpec) -> JobSpec:
    """A supervised job of three nodes with two processes each."""
    return replace(with_resources(job, nodes=3, processes=2), supervised=True)
