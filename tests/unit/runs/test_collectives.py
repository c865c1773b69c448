"""The Job of a measurement: its manifest, the refusals before it, and its removal."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.unit.runs.test_submission import Namespace
from understudy.errors import InputError, UnderstudyError
from understudy.kube.api import Kube
from understudy.kube.settings import Cluster, parsed
from understudy.recipe import Resources
from understudy.runs import collectives

CLUSTER = parsed({"image": "i:1", "claim": "c", "pools": {"gpu": {}, "cpu": {"node_selector": {"a": "b"}}}}, "test")


class Namespaces(Namespace):
    """Keeps created objects until they are deleted."""

    batch = SimpleNamespace(create_namespaced_job="make", delete_namespaced_job="delete")

    def __init__(self) -> None:
        super().__init__()
        self.jobs: dict[str, Any] = {}

    def call(self, method: str, *arguments: Any, **options: Any) -> Any:
        if method == "make":
            self.jobs[arguments[1]["metadata"]["name"]] = arguments[1]
        if method == "delete":
            self.jobs.pop(arguments[0], None)


@pytest.fixture
def namespace(monkeypatch: pytest.MonkeyPatch) -> Namespaces:
    monkeypatch.setattr(collectives, "stop", lambda kube, name: None)
    return Namespaces()


def followed(end: int | Exception) -> Any:
    def follow(kube: Namespaces, name: str, report: Any) -> int:
        assert name in kube.jobs
        report("8 KiB")
        if isinstance(end, Exception):
            raise end
        return end

    return follow


def test_the_job_is_followed_and_removed(namespace: Namespaces, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collectives.following, "follow", followed(0))
    lines: list[str] = []
    assert collectives.measure(cast(Kube, namespace), CLUSTER, Resources(pool="gpu", nodes=2), lines.append) == 0
    assert lines == ["8 KiB"]
    assert namespace.jobs == {}


def test_one_that_fails_is_removed_too_and_its_time_is_named(
    namespace: Namespaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collectives.following, "follow", followed(UnderstudyError("the run's pods failed: late")))
    with pytest.raises(UnderstudyError, match=r"late\. A measurement may take 15 minutes; the last line above shows"):
        collectives.measure(cast(Kube, namespace), CLUSTER, Resources(pool="gpu", nodes=2), print)
    assert namespace.jobs == {}


@pytest.mark.parametrize(
    ("cluster", "resources", "message"),
    [
        (CLUSTER, {"pool": "h100", "nodes": 2}, r"this cluster has no pool 'h100' \(it has cpu, gpu\)"),
        (CLUSTER, {"pool": "gpu"}, "a collective needs at least two processes"),
        (CLUSTER.model_copy(update={"one_node": True}), {"pool": "gpu", "nodes": 2}, "--nodes: 2; .* on one node"),
    ],
)
def test_a_measurement_that_is_impossible_is_refused_and_nothing_is_created(
    namespace: Namespaces, cluster: Cluster, resources: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        collectives.measure(cast(Kube, namespace), cluster, Resources(**resources), print)
    assert namespace.jobs == {}


def test_its_pod_is_a_launcher_s_without_credentials_and_ends_in_time() -> None:
    job = collectives.render(
        "collectives-1", CLUSTER.model_copy(update={"pool": "cpu"}), Resources(pool="gpu", nodes=2)
    )
    pod = job["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert container["command"] == ["python", "-m", collectives.MODULE, "gpu", "2", "1"]
    assert container["envFrom"] == []
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    assert "recipe" not in {volume["name"] for volume in pod["volumes"]}
    assert pod["nodeSelector"] == {"a": "b"}, "launchers go where no GPU is"
    assert job["spec"]["activeDeadlineSeconds"] == collectives.DEADLINE
