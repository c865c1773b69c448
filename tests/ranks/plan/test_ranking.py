"""Sets of degrees, ranked by several processes."""

import dataclasses
from typing import Any

import pytest

from tests.unit.plan.test_depth import llama, planned
from tests.unit.plan.test_ranking import placement
from understudy.plan import ranking as module
from understudy.plan.ranking import Ranking, ranking, workers


def test_processes_of_their_own_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = ranking(planned(llama(2)), placement(10))
    monkeypatch.setattr(module, "ENOUGH", 1)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    with workers() as pool:
        assert pool
        assert _plain(ranking(planned(llama(2)), placement(10), pool)) == _plain(alone)


def _plain(ranked: Ranking) -> Any:
    return dataclasses.asdict(ranked)
