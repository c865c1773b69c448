from typing import Any

import pytest

from understudy.errors import UnderstudyError
from understudy.launch.onlooker import exit_code, pending


def job(**conditions: str) -> dict[str, Any]:
    return {"status": {"conditions": [{"type": kind, "status": value} for kind, value in conditions.items()]}}


def pod(code: int) -> dict[str, Any]:
    state = {"terminated": {"exitCode": code, "reason": "Error"}}
    return {"metadata": {"name": "p"}, "status": {"containerStatuses": [{"state": state}]}}


def test_a_run_ends_with_the_exit_code_of_its_last_answer() -> None:
    assert exit_code(job(), [pod(143)]) is None
    assert exit_code(job(Failed="False"), []) is None
    assert exit_code(job(Complete="True"), [pod(143)]) == 0
    assert exit_code(job(Failed="True"), [pod(143), pod(3)]) == 3
    with pytest.raises(UnderstudyError, match="the run's pods failed: p ended with exit code 137"):
        exit_code(job(Failed="True"), [pod(137)])


def test_a_run_that_waits_says_for_what() -> None:
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}
    status = {"phase": "Pending", "containerStatuses": [{"image": "i:1", "state": waiting}]}
    sight = pending([{"metadata": {"name": "p"}, "spec": {}, "status": status}])
    assert sight is not None
    assert (sight.stage, sight.detail) == (
        "pulling",
        "image i:1 cannot be pulled: not found; push it, or give the pod's ServiceAccount an imagePullSecret",
    )
    assert pending([{"metadata": {"name": "p"}, "spec": {}, "status": {"phase": "Running"}}]) is None
    assert pending([]) is None
