"""understudy doctor --cluster against a namespace that lacks one thing after the other."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml
from launched import NAMESPACE, SETTINGS, kubectl

from understudy.cli import doctor_cluster
from understudy.cli.check import Check
from understudy.launch.kube import Kube
from understudy.launch.placement import CONFIG

pytestmark = pytest.mark.cluster
Doctor = Callable[..., dict[str, Check]]


@pytest.fixture
def doctor(kube: Kube) -> Iterator[Doctor]:
    """What the doctor says of the tests' namespace with the given settings, by what was looked at."""
    del kube

    def checked(**settings: Any) -> dict[str, Check]:
        data = {"cluster.yaml": yaml.safe_dump({**SETTINGS, **settings})}
        made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": CONFIG}, "data": data}
        kubectl("apply", "-f", "-", text=json.dumps(made))
        return {check.what: check for check in doctor_cluster.checks(NAMESPACE)}

    yield checked
    kubectl("delete", "configmap", CONFIG, "--ignore-not-found")


def pools(**labels: str) -> dict[str, Any]:
    return {"pools": {"gpu": {**SETTINGS["pools"]["gpu"], "node_selector": labels}}}


def test_a_namespace_that_has_everything_passes(doctor: Doctor) -> None:
    found = doctor()
    assert [check for check in found.values() if not check.ok] == []
    assert found["pool gpu"].found == "2 nodes, 4 + 4 nvidia.com/gpu"
    assert found["claim"].found == "understudy-store, ReadWriteMany, Bound"
    assert found["queue"].found == "none: jobs start at once"
    assert {"right to create jobs.batch", "right to list pytorchjobs.kubeflow.org", "kubeflow.org/v1"} <= found.keys()


def test_a_namespace_without_settings_is_told_what_to_apply(kube: Kube) -> None:
    kubectl("delete", "configmap", CONFIG, "--ignore-not-found")
    *_, last = doctor_cluster.checks(kube.namespace)
    assert (last.what, last.ok) == ("settings", False)
    assert "kubectl apply -k one of manifests/overlays" in last.fix


@pytest.mark.parametrize(
    ("settings", "what", "fix"),
    [
        ({"claim": "nothing"}, "claim", "kubectl apply -k"),
        (pools(gpu="h100"), "pool gpu", "no node has its labels now"),
        ({"queue": "nothing"}, "queue", f"make a LocalQueue nothing in namespace {NAMESPACE}"),
    ],
)
def test_what_is_missing_is_named_with_the_way_to_get_it(
    doctor: Doctor, settings: dict[str, Any], what: str, fix: str
) -> None:
    found = doctor(**settings)
    assert fix in found[what].fix
    assert [check.what for check in found.values() if not check.ok] == [what]


def test_an_api_of_another_version_is_not_there(kube: Kube) -> None:
    assert doctor_cluster._api(kube, "kubeflow.org", "v1", "fix").ok
    assert not doctor_cluster._api(kube, "kubeflow.org", "v1beta1", "fix").ok


def test_a_pool_whose_jobs_the_queue_could_never_admit_is_named(doctor: Doctor, queue: dict[str, Any]) -> None:
    found = doctor(**queue)["quota for pool gpu"]
    assert found.fix.endswith("without one it admits no job that asks for any"), "the queue has a quota for CPUs alone"
    flavor = json.loads(kubectl("get", "resourceflavor", NAMESPACE, "-o", "json"))
    labelled = {key: flavor[key] for key in ("apiVersion", "kind")} | {
        "metadata": {"name": NAMESPACE},
        "spec": {"nodeLabels": {"node-pool": "cpu"}},
    }
    without_gpus = {"pools": {"gpu": {"node_selector": {"node-pool": "gpu"}}}}
    assert doctor(**queue, **without_gpus)["quota for pool gpu"].ok
    kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", text=json.dumps(labelled))
    try:
        assert "with the pool's labels" in doctor(**queue, **without_gpus)["quota for pool gpu"].fix
    finally:
        bare = labelled | {"spec": {}}
        kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", text=json.dumps(bare))
