"""A step's job in a cluster: the checks before it, its manifest, and an API server that does not answer for a while."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.jobs.specs import job_spec, with_resources
from tests.unit.launch.kubernetes.rendered import CLUSTER, OWNER, RUN, template
from understudy.errors import FAILED, InputError
from understudy.jobs.outcome import Outcome
from understudy.jobs.specification import JobSpec
from understudy.kube import api
from understudy.kube.api import Kube, Refused, Unavailable
from understudy.kube.kind import KINDS, PYTORCHJOB, TRAINJOB, JobKind
from understudy.kube.objects import KubernetesObject
from understudy.kube.settings import Cluster
from understudy.launch.kubernetes import launcher, preflight
from understudy.launch.kubernetes.launcher import KubernetesLauncher
from understudy.launch.kubernetes.rendering.task_config import TaskConfig
from understudy.launch.metrics import JobMetrics
from understudy.recipe import Resources


class Namespace(Kube):
    """Has operators and the runtime, no job, and accepts none."""

    def __init__(self, *kinds: JobKind, away: int = 0) -> None:
        self.namespace, self._kinds, self._away = "here", kinds, away
        self.core = SimpleNamespace(read_namespaced_pod=None)
        self.batch = SimpleNamespace(read_namespaced_job="the owner")
        self.owner: KubernetesObject = {"metadata": {"uid": OWNER["uid"]}, "spec": {}}
        self.deleted: list[str] = []
        self.submitted: list[KubernetesObject] = []
        self.there: list[tuple[JobKind, KubernetesObject]] = []

    def has(self, kind: JobKind) -> bool:
        self._away -= 1
        if self._away >= 0:
            raise Unavailable("nobody answers")
        return kind in self._kinds

    def training_runtime(self, name: str) -> KubernetesObject:
        del name
        pod = {"terminationGracePeriodSeconds": 60, "containers": [{"name": "node"}]}
        jobs = [{"name": "node", "template": {"spec": {"template": {"spec": pod}}}}]
        return {"spec": {"template": {"spec": {"replicatedJobs": jobs}}}}

    def call(self, method: object, *arguments: object, **options: object) -> Any:
        if method == "the owner":
            return self.owner
        return {"metadata": {"ownerReferences": [{**OWNER, "controller": True}]}}

    def jobs(self, kind: JobKind, selector: str) -> list[KubernetesObject]:
        return [job for owner, job in self.there if owner is kind]

    def pods(self, selector: str) -> list[KubernetesObject]:
        return []

    def create_job(self, kind: JobKind, job: KubernetesObject) -> None:
        assert kind in self._kinds
        self.submitted.append(job)
        raise Refused("no")

    def delete_job(self, kind: JobKind, name: str) -> None:
        self.deleted.append(name)


class Watched:
    """Who waits, and how often that one was called."""

    def __init__(self) -> None:
        self.called, self.told_events = 0, list[str]()
        self.metrics = JobMetrics("digits-1", "teacher", "digits", "images")

    def __call__(self) -> None:
        self.called += 1

    def tell(self, text: str) -> None:
        self.told_events.append(text)


@pytest.fixture
def spec(tmp_path: Path) -> JobSpec:
    return job_spec(tmp_path / "job", logs=str(tmp_path / "logs"), supervised=True)


TASK = TaskConfig(node_selector={"gpu": "h100"})


def run(
    monkeypatch: pytest.MonkeyPatch, kube: Namespace, kind: JobKind, spec: JobSpec, watched: Watched | None = None
) -> Outcome:
    monkeypatch.setattr(launcher, "Kube", lambda: kube)
    monkeypatch.setattr(api, "AGAIN", 0.0)
    cluster = CLUSTER.model_copy(update={"mount": str(Path(spec.folder).parents[1])})
    return KubernetesLauncher(kind, RUN, 0.0, cluster, TASK).run(spec, watched or Watched())


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_steps_job_is_submitted_with_the_settings_of_its_task(
    monkeypatch: pytest.MonkeyPatch, spec: JobSpec, kind: JobKind
) -> None:
    kube, watched = Namespace(kind), Watched()
    outcome = run(monkeypatch, kube, kind, spec, watched)
    assert (outcome.exit_code, outcome.message) == (FAILED, f"the job {RUN.name} was not accepted: no")
    [job] = kube.submitted
    assert (job["kind"], job["metadata"]["ownerReferences"]) == (kind.name, [OWNER])
    pod_template = template(job) if kind is PYTORCHJOB else job["spec"]["podTemplateOverrides"][0]
    assert pod_template["spec"]["nodeSelector"] == {"gpu": "h100"}
    assert JobSpec.read(spec.path) == spec
    assert watched.called > 0


def test_an_api_server_that_is_away_is_waited_for(monkeypatch: pytest.MonkeyPatch, spec: JobSpec) -> None:
    kube, watched = Namespace(PYTORCHJOB, away=3), Watched()
    assert "was not accepted" in run(monkeypatch, kube, PYTORCHJOB, spec, watched).message
    assert watched.called > 3, "the lease is looked at meanwhile"


def test_nothing_is_submitted_where_the_operator_is_not_there_or_cannot(
    monkeypatch: pytest.MonkeyPatch, spec: JobSpec
) -> None:
    for kube, job, message in (
        (Namespace(PYTORCHJOB), spec, "does not serve TrainJobs"),
        (Namespace(TRAINJOB), with_resources(spec, nodes=2, min_nodes=1), r"resources\.teacher\.min_nodes: 1"),
    ):
        with pytest.raises(InputError, match=message):
            run(monkeypatch, kube, TRAINJOB, job)
        assert not kube.submitted
        assert not spec.path.exists()


def test_a_pytorchjob_needs_its_operator_and_nothing_else() -> None:
    elastic, cluster = Resources(nodes=2, min_nodes=1, priority="high"), Cluster(image="i", claim="c")
    preflight.check(Namespace(PYTORCHJOB), PYTORCHJOB, cluster, elastic, "resources.teacher")
    with pytest.raises(InputError, match="does not serve PyTorchJobs"):
        preflight.check(Namespace(TRAINJOB), PYTORCHJOB, cluster, elastic, "resources.teacher")


@pytest.mark.parametrize(("kind", "other_kind"), [(PYTORCHJOB, TRAINJOB), (TRAINJOB, PYTORCHJOB)])
def test_nothing_is_submitted_while_a_job_of_another_kind_does_the_work(
    monkeypatch: pytest.MonkeyPatch, spec: JobSpec, kind: JobKind, other_kind: JobKind
) -> None:
    kube = Namespace(kind, other_kind)
    rival: KubernetesObject = {"metadata": {"name": "teacher-1", "uid": "1"}, "spec": {}, "status": {"conditions": []}}
    kube.there = [(other_kind, rival)]
    with pytest.raises(InputError, match=f"the {other_kind.name} teacher-1 already does this work"):
        run(monkeypatch, kube, kind, spec)
    assert kube.submitted == []
    rival["status"]["conditions"] = [{"type": other_kind.succeeded, "status": "True"}]
    run(monkeypatch, kube, kind, spec)
    assert len(kube.submitted) == 1


TERMINATED = {"spec": {"activeDeadlineSeconds": 0}}
"""A Workflow whose run was terminated in KFP."""


@pytest.mark.parametrize(("owner", "deleted"), [({}, []), (TERMINATED, [RUN.name])], ids=["evicted", "terminated"])
def test_a_launcher_that_is_killed_takes_its_job_along_only_where_the_run_is_over(
    monkeypatch: pytest.MonkeyPatch, spec: JobSpec, owner: KubernetesObject, deleted: list[str]
) -> None:
    kube = Namespace(PYTORCHJOB)
    kube.owner |= owner

    def killed(*_: object) -> Outcome:
        raise SystemExit(130)

    monkeypatch.setattr(launcher.controller, "run", killed)
    with pytest.raises(SystemExit):
        run(monkeypatch, kube, PYTORCHJOB, spec)
    assert kube.deleted == deleted


def test_a_launcher_that_is_killed_ends_though_nobody_answers(monkeypatch: pytest.MonkeyPatch, spec: JobSpec) -> None:
    kube = Namespace(PYTORCHJOB)
    call_before = kube.call

    def call(method: object, *arguments: object, **options: object) -> Any:
        if method == "the owner":
            raise Unavailable("nobody answers")
        return call_before(method, *arguments, **options)

    def killed(*_: object) -> Outcome:
        raise SystemExit(130)

    monkeypatch.setattr(kube, "call", call)
    monkeypatch.setattr(launcher.controller, "run", killed)
    with pytest.raises(SystemExit):
        run(monkeypatch, kube, PYTORCHJOB, spec)
