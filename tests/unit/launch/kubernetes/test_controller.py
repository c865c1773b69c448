"""A launcher whose cluster refuses requests or does not answer; tests/cluster has the rest."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.jobs.specs import with_resources
from tests.unit.launch.kubernetes.statuses import job_of
from understudy.errors import FAILED, STOPPED, Fenced
from understudy.jobs.outcome import Outcome
from understudy.jobs.specification import JobSpec
from understudy.kube.api import Kube, Refused, Unavailable
from understudy.kube.kind import JobKind
from understudy.kube.objects import KubernetesObject
from understudy.kube.timeouts import RECOVERY, STARTS
from understudy.launch.kubernetes import controller

RIGHT = "a permission is missing: pods is forbidden"


class Answers(Kube):
    """A cluster whose answer to the first question is always the same."""

    def __init__(self, error: Exception) -> None:
        self._error = error
        self.requests = 0

    def jobs(self, kind: JobKind, selector: str) -> list[KubernetesObject]:
        self.requests += 1
        raise self._error

    def delete_job(self, kind: JobKind, name: str) -> None:
        raise self._error


class Taken(Kube):
    """A cluster that accepts a job and then loses it, with its answers about the job's run."""

    namespace = "here"

    def __init__(self, run: KubernetesObject | Exception | None) -> None:
        self._run = run
        self.batch = SimpleNamespace(read_namespaced_job=None)

    def call(self, method: object, *arguments: object, **options: object) -> Any:
        if isinstance(self._run, Exception):
            raise self._run
        return self._run

    def jobs(self, kind: JobKind, selector: str) -> list[KubernetesObject]:
        return []

    def create_job(self, kind: JobKind, job: KubernetesObject) -> None:
        pass

    def create_event(self, event: KubernetesObject) -> None:
        pass

    def job(self, kind: JobKind, name: str) -> KubernetesObject | None:
        return None

    def delete_job(self, kind: JobKind, name: str) -> None:
        pass


class Clock:
    """Seconds that pass only while the launcher sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def run(job: JobSpec, kube: Kube, watch: object = lambda: None, clock: Clock | None = None) -> Outcome:
    clock = clock or Clock()
    return controller.run(job_of(job), kube, watch, lambda text: None, lambda observation: None, clock, clock.sleep)  # type: ignore[arg-type]


def test_a_missing_right_ends_the_step_once_it_had_its_time(job: JobSpec) -> None:
    kube = Answers(Refused(RIGHT))
    with pytest.raises(Refused, match=RIGHT):
        run(job, kube)
    assert kube.requests > 3, "a server that has just started may say so too"


@pytest.mark.parametrize(
    "error", [Unavailable("nobody answers"), OSError(116, "Stale file handle")], ids=["server", "volume"]
)
def test_a_temporary_error_is_waited_out(job: JobSpec, error: Exception) -> None:
    clock = Clock()
    seconds = 10 * RECOVERY if isinstance(error, Unavailable) else RECOVERY - 1

    def watch() -> None:
        if clock.now > seconds:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(job, Answers(error), watch, clock)


def test_a_volume_that_stays_away_ends_the_step(job: JobSpec) -> None:
    def watch() -> None:
        raise OSError(5, "Input/output error")

    with pytest.raises(OSError, match="Input/output"):
        run(job, Answers(Unavailable("nobody answers")), watch)


def test_a_volume_that_is_full_ends_the_step_at_once(job: JobSpec) -> None:
    looks: list[int] = []

    def watch() -> None:
        looks.append(1)
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        run(job, Answers(Unavailable("nobody answers")), watch)
    assert len(looks) == 2, "the other one is before its job is deleted"


@pytest.mark.parametrize(
    ("run_of_it", "exit_code", "message"),
    [
        (None, STOPPED, "Job run no longer exists"),
        ({"metadata": {"uid": "run", "deletionTimestamp": "now"}, "spec": {}}, STOPPED, "Job run was deleted"),
        ({"metadata": {"uid": "run"}, "spec": {}}, FAILED, "was deleted by another client; run again to resume"),
        (Refused(RIGHT), FAILED, "was deleted by another client; run again to resume"),
    ],
)
def test_a_job_that_went_with_its_run_was_stopped_and_one_that_went_alone_has_failed(
    job: JobSpec, run_of_it: KubernetesObject | Exception | None, exit_code: int, message: str
) -> None:
    outcome = run(job, Taken(run_of_it))
    assert outcome.exit_code == exit_code
    assert message in outcome.message


def test_a_launcher_that_has_lost_its_lease_submits_nothing(job: JobSpec) -> None:
    class Slow(Taken):
        """Another launcher takes over while this one waits for an answer."""

        answered = False
        created = False

        def jobs(self, kind: JobKind, selector: str) -> list[KubernetesObject]:
            self.answered = True
            return []

        def create_job(self, kind: JobKind, job: KubernetesObject) -> None:
            self.created = True

    kube = Slow(None)

    def watch() -> None:
        if kube.answered:
            raise Fenced("another launcher has the step")

    Path(job.folder).mkdir(parents=True, exist_ok=True)
    outcome = Outcome(FAILED, "of a rank of the other launcher's job", attempt="attempt.1.x")
    outcome.write(job.outcome(0))
    with pytest.raises(Fenced):
        run(job, kube, watch)
    assert not kube.created
    assert Outcome.read(job.outcome(0)) == outcome


class Ended(Kube):
    """A cluster that had a job, whose pods ended without an outcome, and that takes another one."""

    def __init__(self) -> None:
        self.namespace = "here"
        self.submitted: list[KubernetesObject] = []
        self.deleted: list[str] = []

    def jobs(self, kind: JobKind, selector: str) -> list[KubernetesObject]:
        return []

    def create_job(self, kind: JobKind, job: KubernetesObject) -> None:
        self.submitted.append(job)

    def create_event(self, event: KubernetesObject) -> None:
        pass

    def job(self, kind: JobKind, name: str) -> KubernetesObject | None:
        failed = {"type": "Failed", "status": "True", "message": "a pod failed"}
        return {
            "metadata": {"name": name, "uid": str(len(self.submitted))},
            "spec": {},
            "status": {"conditions": [failed]},
        }

    def pods(self, selector: str) -> list[KubernetesObject]:
        return []

    def delete_job(self, kind: JobKind, name: str) -> None:
        self.deleted.append(name)


class Guarded(Ended):
    """A namespace with the NetworkPolicies of the manifests, or without; all that is made there, in its order."""

    def __init__(self, *policies: str) -> None:
        super().__init__()
        self.policies, self.created = policies, list[str]()

    def has_policy(self, name: str) -> bool:
        return name in self.policies

    def create_policy(self, policy: KubernetesObject) -> None:
        self.created.append(policy["kind"])

    def create_job(self, kind: JobKind, job: KubernetesObject) -> None:
        self.created.append(kind.name)
        super().create_job(kind, job)


@pytest.mark.parametrize(
    ("nodes", "policies", "created"),
    [
        (2, ["ranks", "names"], ["NetworkPolicy", "PyTorchJob"]),
        (1, ["ranks", "names"], ["PyTorchJob"]),
        (2, ["names"], ["PyTorchJob"]),
    ],
)
def test_nodes_of_a_job_may_speak_to_each_other_before_they_are_there(
    job: JobSpec, nodes: int, policies: list[str], created: list[str]
) -> None:
    kube = Guarded(*policies)
    run(with_resources(job, nodes=nodes), kube)
    assert kube.created[: len(created)] == created
    assert kube.created.count("NetworkPolicy") == created.count("NetworkPolicy") * len(kube.submitted)


def test_a_launcher_that_may_make_no_policy_submits_nothing_and_names_the_missing_right(job: JobSpec) -> None:
    class Forbidden(Guarded):
        """An account with the rights of an earlier version."""

        def has_policy(self, name: str) -> bool:
            raise Refused(f"a permission is missing: networkpolicies {name} is forbidden")

    kube = Forbidden()
    outcome = run(with_resources(job, nodes=2), kube)
    assert (outcome.exit_code, kube.created) == (FAILED, [])
    assert "was not accepted: a permission is missing: networkpolicies" in outcome.message


def test_a_job_whose_ranks_left_since_nobody_watched_is_submitted_again(job: JobSpec) -> None:
    kube = Ended()

    def watch() -> None:
        if len(kube.submitted) == 1 and not kube.deleted:
            job.abandoned_file.touch()

    outcome = run(job, kube, watch)
    assert len(kube.submitted) == 2
    assert outcome.message == "a pod failed", "the second one's ranks did not leave"


def test_a_job_whose_ranks_end_each_time_is_not_submitted_forever(job: JobSpec) -> None:
    kube = Ended()
    outcome = run(job, kube, lambda: job.abandoned_file.touch() if kube.submitted else None)
    assert len(kube.submitted) == STARTS
    assert outcome.exit_code == FAILED
    assert "its ranks ended 10 times because they saw no launcher for 600 s" in outcome.message


def test_a_job_that_ended_without_a_word_has_failed(job: JobSpec) -> None:
    outcome = run(job, Ended())
    assert (outcome.exit_code, outcome.message, outcome.kind) == (FAILED, "a pod failed", "unreported")
