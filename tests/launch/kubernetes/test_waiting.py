from typing import Any

import pytest

from understudy.launch.kubernetes.status import Sight
from understudy.launch.kubernetes.waiting import LEAVING, Leaving, Waiting

TOO_SMALL = "insufficient quota for cpu in flavor gpu, request > maximum capacity (32 > 16)"  # as Kueue says it
IN_USE = "insufficient unused quota for cpu in flavor gpu, 8 more needed"


def test_a_job_has_waited_since_it_came_to_where_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("understudy.launch.kubernetes.waiting.time.monotonic", lambda: clock[0])
    waiting = Waiting()

    def after(seconds: float, sight: Sight) -> float:
        clock[0] += seconds
        waiting.look(sight)
        return waiting.seconds

    never = Sight("queued", TOO_SMALL)
    assert after(5, Sight("queued", "waiting")) == 0
    assert after(3600, Sight("queued", IN_USE)) == 3600
    assert after(5, never) == 0, "what is hopeless has its own minute"
    assert after(50, never) == 50
    assert after(5, Sight("queued", IN_USE)) == 55, "what is no longer hopeless waits on"
    waiting.shorten(50)
    assert after(10, Sight("queued")) == 60
    assert after(1, Sight("pending")) == 0


def pod(name: str, uid: str, **meta: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": uid, **meta}}


def test_a_deleted_pod_that_outlives_its_grace_period_lies_on_a_dead_node(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("understudy.launch.kubernetes.waiting.time.monotonic", lambda: clock[0])
    leaving = Leaving()
    going = {"deletionTimestamp": "1999-01-01T00:00:00Z", "deletionGracePeriodSeconds": 60}  # by a clock that is wrong
    pods = [pod("a", "1", **going), pod("b", "2")]
    assert leaving.overdue(pods) == ()
    clock[0] = 60 + LEAVING
    assert leaving.overdue(pods) == ()
    clock[0] += 1
    assert leaving.overdue(pods) == ("a",)
    assert leaving.overdue([pod("a", "3", **going)]) == (), "the one that came instead has its own time"
