from typing import Any

import pytest

from understudy.errors import UnderstudyError
from understudy.launch.driver import _exit_code, _waiting, render
from understudy.launch.placement import Cluster


def job(**conditions: str) -> dict[str, Any]:
    return {"status": {"conditions": [{"type": kind, "status": value} for kind, value in conditions.items()]}}


def pod(code: int) -> dict[str, Any]:
    state = {"terminated": {"exitCode": code, "reason": "Error"}}
    return {"metadata": {"name": "p"}, "status": {"containerStatuses": [{"state": state}]}}


def test_a_run_ends_with_the_exit_code_of_its_last_answer() -> None:
    assert _exit_code(job(), [pod(143)]) is None
    assert _exit_code(job(Failed="False"), []) is None
    assert _exit_code(job(Complete="True"), [pod(143)]) == 0
    assert _exit_code(job(Failed="True"), [pod(143), pod(3)]) == 3
    with pytest.raises(UnderstudyError, match="the run's pods failed: p ended with exit code 137"):
        _exit_code(job(Failed="True"), [pod(137)])


def test_a_run_that_waits_says_for_what() -> None:
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}
    status = {"phase": "Pending", "containerStatuses": [{"image": "i:1", "state": waiting}]}
    assert _waiting([{"metadata": {"name": "p"}, "spec": {}, "status": status}]) == (
        "pulling: image i:1 cannot be pulled: not found; push it, or give the pod's ServiceAccount an imagePullSecret"
    )
    assert _waiting([{"metadata": {"name": "p"}, "spec": {}, "status": {"phase": "Running"}}]) == ""
    assert _waiting([]) == ""


def test_a_pod_that_has_an_answer_is_not_tried_again_and_one_that_had_to_go_is() -> None:
    made = render("digits-1", Cluster(image="i:1", claim="c"))
    fail, ignore = made["spec"]["podFailurePolicy"]["rules"]
    assert (fail["action"], fail["onExitCodes"]["values"]) == ("FailJob", [1, 2, 3])
    assert (ignore["action"], ignore["onPodConditions"]) == ("Ignore", [{"type": "DisruptionTarget"}])
    assert made["spec"]["template"]["spec"]["restartPolicy"] == "Never"
