from typing import Any

import pytest

from understudy.kube.pods import death, first_dead, mount_error


def pod(name: str = "a", phase: str = "Running", node: str = "n", **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"nodeName": node}, "status": {"phase": phase, **status}}


def test_the_first_failed_pod_is_reported() -> None:
    def ended(name: str, at: str, code: int, reason: str) -> dict[str, Any]:
        state = {"terminated": {"exitCode": code, "reason": reason, "finishedAt": at}}
        return pod(name, "Failed", containerStatuses=[{"state": state}])

    pods = [ended("late", "2026-01-01T00:00:09Z", 1, "Error"), ended("first", "2026-01-01T00:00:02Z", 137, "OOMKilled")]
    assert death(pods) == "first ended with exit code 137 (OOMKilled)"
    assert first_dead(pods) == "first"
    assert "low on memory" in death([pod("e", "Failed", reason="Evicted", message="low on memory")])
    assert death([pod()]) == ""


NOT_THERE = 'MountVolume.SetUp failed for volume "extra" : secret "extra" not found'


def event(reason: str, first: int, last: int, message: str = NOT_THERE) -> dict[str, Any]:
    times = {"firstTimestamp": f"2026-01-01T00:{first:02}:00Z", "lastTimestamp": f"2026-01-01T00:{last:02}:00Z"}
    return {"reason": reason, "message": message, **times}


SANDBOX = event("SandboxChanged", 3, 3, "Pod sandbox changed, it will be killed and re-created.")


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([], ("", 0.0)),
        ([event("FailedMount", 1, 5)], (NOT_THERE, 240.0)),
        ([event("FailedAttachVolume", 0, 2, "busy"), event("FailedMount", 1, 5)], (NOT_THERE, 300.0)),
        ([event("FailedMount", 1, 5), event("Pulling", 6, 6, "pulling")], ("", 0.0)),
        ([event("FailedCreatePodSandBox", 1, 2, "no address left")], ("no address left", 60.0)),
        ([event("FailedCreatePodSandBox", 1, 2, "no address left"), SANDBOX], ("no address left", 60.0)),
        ([event("FailedCreatePodSandBox", 1, 2, f'sandbox "{"0a1b" * 16}": no')], ('sandbox "...": no', 60.0)),
        ([{"reason": "Scheduled", "message": "", "lastTimestamp": None, "eventTime": "2026-01-01T00:00:00Z"}], ("", 0)),
    ],
)
def test_a_pod_without_its_volumes_gives_the_reason_and_for_how_long(events: Any, expected: tuple[str, float]) -> None:
    assert mount_error(events) == expected
