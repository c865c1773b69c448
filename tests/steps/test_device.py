from typing import Any

import pytest

from understudy.launch.kubernetes import settings
from understudy.recipe import Resources
from understudy.steps import device as module
from understudy.steps.device import threads


@pytest.mark.parametrize(("resources", "expected"), [({}, 7), ({"cpu": "2500m"}, 2), ({"cpu": "100m"}, 1)])
def test_a_single_process_in_a_cluster_takes_the_cores_that_it_asks_for(
    monkeypatch: pytest.MonkeyPatch, resources: dict[str, Any], expected: int
) -> None:
    monkeypatch.setenv(settings.LAUNCHER, "pytorchjob")
    monkeypatch.setattr(module.os, "cpu_count", lambda: 7)
    assert threads(Resources(**resources)) == expected
    assert threads(Resources(**resources, processes=2)) == 1
    assert threads(Resources(**resources, threads=3)) == 3
