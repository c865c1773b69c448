from typing import Any

import pytest

from understudy.launch.kubernetes.status import amount, death, look, never_fits, without_volumes


def job(suspend: bool = False, **conditions: str) -> dict[str, Any]:
    said = [{"type": kind, "status": "True", "message": message} for kind, message in conditions.items()]
    return {"metadata": {"uid": "1"}, "spec": {"runPolicy": {"suspend": suspend}}, "status": {"conditions": said}}


def pod(name: str = "a", phase: str = "Running", node: str = "n", **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"nodeName": node}, "status": {"phase": phase, **status}}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    state = {"image": "i:1", "state": {"waiting": {"reason": reason, "message": message}}}
    return pod(phase="Pending", containerStatuses=[state])


UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}
WORKLOAD = {
    "spec": {"queueName": "q"},
    "status": {"conditions": [{"type": "QuotaReserved", "status": "False", "message": "insufficient quota"}]},
}


@pytest.mark.parametrize(
    ("found", "pods", "workload", "stage", "words"),
    [
        (None, [], None, "gone", "not there"),
        (job(Failed="it failed"), [], None, "failed", "it failed"),
        (job(Succeeded="it went well"), [pod()], None, "succeeded", "it went well"),
        (job(suspend=True), [], None, "queued", "Kueue has not seen it"),
        (job(suspend=True), [], WORKLOAD, "queued", "insufficient quota"),
        (job(), [], None, "pending", "training operator"),
        (job(), [pod(phase="Pending", conditions=[UNSCHEDULABLE])], None, "pending", "0/3 nodes"),
        (job(), [waiting("ImagePullBackOff", "not found")], None, "pulling", "image i:1 cannot be pulled: not found"),
        (job(), [waiting("CreateContainerConfigError", "no secret")], None, "pending", "a cannot start: no secret"),
        (job(), [pod(), pod("b", phase="Pending")], None, "pulling", "1 of 2 pods"),
        (job(), [pod(node="x"), pod("b", node="y")], None, "running", "on x, y"),
    ],
)
def test_where_a_job_stands(found: Any, pods: Any, workload: Any, stage: str, words: str) -> None:
    sight = look(found, pods, workload)
    assert sight.stage == stage
    assert words in sight.detail


def test_a_job_that_is_being_deleted_is_as_good_as_gone() -> None:
    deleted = job()
    deleted["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:30Z"
    assert look(deleted, [pod()]).stage == "gone"


def test_an_image_that_cannot_be_pulled_will_not_mend_by_itself() -> None:
    assert look(job(), [waiting("ErrImagePull")]).broken


def test_a_job_with_pods_on_a_dead_node_gives_them_up() -> None:
    sight = look(job(), [pod(node="x"), pod("b", node="y")], dead=("b",))
    assert (sight.stage, sight.detail, sight.dead) == (
        "restarting",
        "node y does not answer; its pods are given up",
        ("b",),
    )


def test_the_first_death_is_told() -> None:
    def ended(name: str, at: str, code: int, reason: str) -> dict[str, Any]:
        state = {"terminated": {"exitCode": code, "reason": reason, "finishedAt": at}}
        return pod(name, "Failed", containerStatuses=[{"state": state}])

    pods = [ended("late", "2026-01-01T00:00:09Z", 1, "Error"), ended("first", "2026-01-01T00:00:02Z", 137, "OOMKilled")]
    assert death(pods) == "first ended with exit code 137 (OOMKilled)"
    assert "low on memory" in death([pod("e", "Failed", reason="Evicted", message="low on memory")])
    assert death([pod()]) == ""


def test_what_can_never_fit_is_told_from_what_has_to_wait() -> None:
    node = {
        "metadata": {"labels": {"pool": "gpu"}},
        "status": {"allocatable": {"nvidia.com/gpu": "4", "memory": "8Gi"}},
    }

    def asking(selector: dict[str, str], **requests: str) -> dict[str, Any]:
        return {"spec": {"nodeSelector": selector, "containers": [{"resources": {"requests": requests}}]}}

    assert never_fits(asking({"pool": "gpu"}, **{"nvidia.com/gpu": "4"}), [node]) == ""
    assert "asks for 8 nvidia.com/gpu" in never_fits(asking({"pool": "gpu"}, **{"nvidia.com/gpu": "8"}), [node])
    assert "memory" in never_fits(asking({}, memory="9Gi"), [node])
    assert "no node has the labels pool=tpu" in never_fits(asking({"pool": "tpu"}), [node])


NOT_THERE = 'MountVolume.SetUp failed for volume "extra" : secret "extra" not found'


def event(reason: str, first: int, last: int, message: str = NOT_THERE) -> dict[str, Any]:
    times = {"firstTimestamp": f"2026-01-01T00:{first:02}:00Z", "lastTimestamp": f"2026-01-01T00:{last:02}:00Z"}
    return {"reason": reason, "message": message, **times}


SANDBOX = event("SandboxChanged", 3, 3, "Pod sandbox changed, it will be killed and re-created.")


@pytest.mark.parametrize(
    ("events", "found"),
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
def test_a_pod_that_gets_no_volumes_says_why_and_for_how_long(events: Any, found: tuple[str, float]) -> None:
    assert without_volumes(events) == found


def test_quantities() -> None:
    assert [float(amount(text)) for text in ("500m", "2", "1Ki", "1.5Gi", "3k")] == [0.5, 2, 1024, 1.5 * 2**30, 3000]
