"""understudy doctor --cluster against a namespace that lacks one thing after the other."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from tests.cluster.launched import NAMESPACE, SETTINGS, kubectl
from understudy.cli import doctor_cluster
from understudy.cli.check import Check
from understudy.kube.api import Kube
from understudy.kube.kind import KINDS
from understudy.kube.settings import CONFIG

pytestmark = pytest.mark.cluster
Doctor = Callable[..., dict[str, Check]]


@pytest.fixture
def doctor(kube: Kube) -> Iterator[Doctor]:
    """The doctor's findings about the tests' namespace with these settings, by check."""
    del kube

    def checked(**settings: Any) -> dict[str, Check]:
        data = {"cluster.yaml": yaml.safe_dump({**SETTINGS, **settings})}
        config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": CONFIG}, "data": data}
        kubectl("apply", "-f", "-", text=json.dumps(config_map))
        return {check.what: check for check in doctor_cluster.checks(NAMESPACE)}

    yield checked
    kubectl("delete", "configmap", CONFIG, "--ignore-not-found")


def pools(**labels: str) -> dict[str, Any]:
    return {"pools": {"gpu": {**SETTINGS["pools"]["gpu"], "node_selector": labels}}}


def test_a_namespace_that_has_everything_passes(doctor: Doctor) -> None:
    by_name = doctor()
    assert [check for check in by_name.values() if not check.ok] == []
    assert by_name["pool gpu"].found == "2 nodes, 4 + 4 nvidia.com/gpu"
    assert by_name["claim"].found == "understudy-store, ReadWriteMany, Bound"
    assert by_name["queue"].found == "none: jobs start at once"
    assert by_name["network"].found.startswith("no NetworkPolicy ranks: "), "the tests' namespace has none"
    assert {
        "right to create jobs.batch",
        "right to list pytorchjobs.kubeflow.org",
        "pytorchjobs.kubeflow.org/v1",
    } <= by_name.keys()


def test_a_namespace_that_is_not_there_is_named(kube: Kube) -> None:
    del kube
    *_, last = doctor_cluster.checks("nowhere")
    assert (last.what, last.found, last.ok) == ("namespace", "nowhere is not there", False)


def test_a_namespace_without_settings_is_reported_with_the_manifest_to_apply(kube: Kube) -> None:
    kubectl("delete", "configmap", CONFIG, "--ignore-not-found")
    *_, last = doctor_cluster.checks(kube.namespace)
    assert (last.what, last.ok) == ("settings", False)
    assert "kubectl apply -k one of manifests/overlays" in last.fix


@pytest.mark.parametrize(
    ("settings", "subject", "fix"),
    [
        ({"claim": "nothing"}, "claim", "kubectl apply -k"),
        (pools(gpu="h100"), "pool gpu", "no node has its labels now"),
        ({"queue": "nothing"}, "queue", f"make a LocalQueue nothing in namespace {NAMESPACE}"),
    ],
)
def test_missing_parts_are_named_with_the_way_to_get_them(
    doctor: Doctor, settings: dict[str, Any], subject: str, fix: str
) -> None:
    by_name = doctor(**settings)
    assert fix in by_name[subject].fix
    assert [check.what for check in by_name.values() if not check.ok] == [subject]


def test_an_api_of_another_version_is_not_there(kube: Kube) -> None:
    assert kube.knows("kubeflow.org", "v1", "pytorchjobs")
    assert not kube.knows("kubeflow.org", "v1beta1", "pytorchjobs")


def test_another_type_of_the_same_group_is_not_the_training_operator(kube: Kube) -> None:
    assert not kube.knows("kubeflow.org", "v1", "notebooks")


def test_the_types_of_both_kinds_have_the_fields_that_we_set(kube: Kube) -> None:
    for kind in KINDS.values():
        assert set(kind.fields) <= (kube.fields(kind) or set())


def test_kueues_version_and_its_managed_kinds_are_found(kube: Kube, doctor: Doctor, queue: dict[str, Any]) -> None:
    by_name = doctor(**queue)
    assert by_name["localqueues.kueue.x-k8s.io"].found == kube.kueue in ("v1beta1", "v1beta2")
    assert by_name["Kueue manages PyTorchJobs"].found == "yes"


@pytest.fixture
def queue_of_other_nodes(kube: Kube) -> Iterator[dict[str, Any]]:
    """Settings with a queue whose one flavor has other nodes than the pool."""
    del kube
    name = f"{NAMESPACE}-other"
    quota = {"name": name, "resources": [{"name": "cpu", "nominalQuota": "1"}]}
    groups = [{"coveredResources": ["cpu"], "flavors": [quota]}]
    objects = [
        manifest("ResourceFlavor", name, nodeLabels={"node-pool": "cpu"}),
        manifest("ClusterQueue", name, namespaceSelector={}, resourceGroups=groups),
        manifest("LocalQueue", "other", clusterQueue=name),
    ]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    kubectl("apply", "--server-side", "-f", "-", text=text)
    yield {"queue": "other"}
    kubectl("delete", "-f", "-", "--wait=false", text=text)


def manifest(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def test_a_pool_whose_jobs_the_queue_could_never_admit_is_named(
    doctor: Doctor, queue: dict[str, Any], queue_of_other_nodes: dict[str, Any]
) -> None:
    without_gpus = {"pools": {"gpu": {"node_selector": {"node-pool": "gpu"}}}}
    assert doctor(**queue, **without_gpus)["quota for pool gpu"].ok
    assert "a quota for nvidia.com/gpu" in doctor(**queue)["quota for pool gpu"].fix
    assert "with the pool's labels" in doctor(**queue_of_other_nodes, **without_gpus)["quota for pool gpu"].fix
