"""A job's events, as `kubectl describe` shows them, and its metrics, on the cluster in memory."""

import pytest

from tests.unit.launch.kubernetes.fake_launcher import FakeLauncher
from tests.unit.launch.kubernetes.fault_world import BOTH, MISTAKE, SIGKILL, Make, World
from tests.unit.launch.kubernetes.statuses import OWNER
from understudy.kube.api import Unavailable
from understudy.kube.kind import PYTORCHJOB, JobKind
from understudy.kube.objects import KubernetesObject
from understudy.launch.kubernetes.events import LONGEST, Event, rendered


def reported(world: World) -> list[tuple[str, str, str]]:
    """Of what, why, and what: in the order in which it was said."""
    events = world.cluster.told_events.values()
    return [(event["involvedObject"]["kind"], event["reason"], event["message"]) for event in events]


def reasons(world: World) -> list[tuple[str, str]]:
    return [(kind, reason) for kind, reason, _ in reported(world)]


@BOTH
def test_a_job_without_faults_has_an_event_for_its_start_and_its_completion(make: Make, kind: JobKind) -> None:
    world = make(kind)
    assert world.ends().exit_code == 0
    assert reasons(world) == [(kind.name, "Submitted"), (kind.name, "Completed")]
    assert reported(world)[0][2] == "by teacher of the run run"
    [submitted, _] = world.cluster.told_events.values()
    about = submitted["involvedObject"]
    assert about["uid"] == world.cluster.created[world.job.name]["metadata"]["uid"]
    assert (about["apiVersion"], about["name"]) == (kind.api_version, world.job.name)


def test_each_restart_of_the_ranks_has_one_event_with_its_reason(make: Make) -> None:
    world = make()
    world.cluster.ranks.steps = 100
    for step in (3, 30):
        world.reaches(step)
        world.cluster.ranks.fail(world.attempt, world.cluster.running()[1], SIGKILL)
    world.ends()
    again = [message for _, reason, message in reported(world) if reason == "Restarted"]
    assert len(again) == 2, "the same words, of two failures"
    assert all(SIGKILL.message in message for message in again)


def test_a_launcher_that_takes_over_does_not_repeat_earlier_events(make: Make) -> None:
    world = make()
    world.reaches(3)
    world.cluster.ranks.fail(world.attempt, world.cluster.running()[1], SIGKILL)
    world.run_until_progress(SIGKILL.message)
    before = reasons(world)
    world.launcher = FakeLauncher(world.cluster, world.job)
    world.run_until_progress(SIGKILL.message)
    assert reasons(world) == [*before, ("PyTorchJob", "LauncherReplaced")]


def test_a_failed_job_has_an_event_at_its_run_too_since_the_job_is_deleted(make: Make) -> None:
    world = make()
    world.reaches(3)
    world.cluster.ranks.fail(world.attempt, world.cluster.running()[1], MISTAKE)
    world.fails(MISTAKE.message)
    assert reasons(world)[-2:] == [("PyTorchJob", "GaveUp"), ("Job", "GaveUp")]
    assert reported(world)[-1][2].startswith(f"{MISTAKE.message} (")
    assert "\n" not in reported(world)[-1][2], "a rank's last lines are in the log"
    assert [event["involvedObject"]["uid"] for event in world.cluster.told_events.values()][-1] == OWNER["uid"]


@BOTH
def test_force_deletion_of_a_dead_nodes_pods_or_resubmission_has_an_event(make: Make, kind: JobKind) -> None:
    world = make(kind)
    world.cluster.ranks.steps = 100
    world.reaches(3)
    world.cluster.kill_node("node-1")
    world.run_until_progress("node node-1 does not answer")
    world.launcher.watch_for(3)
    world.cluster.revive_node("node-1")
    assert world.ends().exit_code == 0
    if kind is PYTORCHJOB:
        assert (
            kind.name,
            "ForceDeleted",
            "restarting: node node-1 does not answer; its pods are force-deleted",
        ) in reported(world)
        return
    [first, *_, second] = [
        event for event in world.cluster.told_events.values() if event["reason"] in ("Submitted", "Restarted")
    ]
    assert second["message"].startswith("submitted again, to resume from the last checkpoint: node node-1 does not")
    assert first["involvedObject"]["uid"] != second["involvedObject"]["uid"], "describe shows that of the newer one"


def test_each_observation_follows_the_job(make: Make) -> None:
    world = make()
    world.reaches(3)
    world.cluster.ranks.fail(world.attempt, world.cluster.running()[1], SIGKILL)
    world.ends()
    stages = [observation.stage for observation in world.launcher.seen]
    assert {"rendezvous", "running", "succeeded"} <= set(stages)
    assert stages.index("rendezvous") < stages.index("running")
    last = world.launcher.seen[-1]
    assert (last.kind, last.name, last.attempt, last.failures) == ("PyTorchJob", world.job.name, 2, ("killed",))
    assert {observation.running_pods for observation in world.launcher.seen} >= {0, 2}
    assert all(set(observation.heartbeats) <= {0, 1} for observation in world.launcher.seen)


@pytest.mark.parametrize("answer", ["create events", "away"])
def test_a_cluster_that_takes_no_events_loses_no_work(
    make: Make, answer: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = make()
    if answer == "away":

        def away(event: KubernetesObject) -> None:
            raise Unavailable("the API server does not answer (timeout)")

        monkeypatch.setattr(world.cluster, "create_event", away)
    else:
        world.cluster.forbidden.add(answer)
    assert world.ends().exit_code == 0
    assert world.cluster.told_events == {}
    lines = [line for line in caplog.messages if "event" in line]
    assert len(lines) == (2 if answer == "away" else 1), "a right that is missing is missing for all of them"


def test_an_event_is_short_and_its_name_identifies_its_content() -> None:
    regarding = {"apiVersion": PYTORCHJOB.api_version, "kind": "PyTorchJob", "name": "teacher-1", "uid": "a"}
    event = Event("Restarted", "x" * 2000 + "\nthe last lines of rank 0:")
    manifest = rendered(regarding, event, "here")
    assert manifest["message"] == "x" * LONGEST
    assert manifest["metadata"]["namespace"] == manifest["involvedObject"]["namespace"] == "here"
    same = rendered(regarding, event, "here")
    different = [
        rendered({**regarding, "uid": "b"}, event, "here"),
        rendered(regarding, event._replace(occurrence="2"), "here"),
        rendered(regarding, event._replace(reason="GaveUp"), "here"),
    ]
    assert same["metadata"]["name"] == manifest["metadata"]["name"]
    assert (
        len({manifest["metadata"]["name"], *(event_manifest["metadata"]["name"] for event_manifest in different)}) == 4
    )
