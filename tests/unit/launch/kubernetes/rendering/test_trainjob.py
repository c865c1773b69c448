"""TrainJobs against the types of Trainer 2.1, and against the runtime of the manifests that they fill in."""

import copy
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml
from kubeflow_trainer_api.models.trainer_v1alpha1_train_job import TrainerV1alpha1TrainJob
from kubeflow_trainer_api.models.trainer_v1alpha1_training_runtime import TrainerV1alpha1TrainingRuntime

from tests import ROOT
from tests.unit.launch.kubernetes.rendered import CLUSTER, OWNER, RUN, pytorch, template, trainer
from understudy.agent import exit_codes
from understudy.errors import FAILED, InputError
from understudy.jobs.specification import JobSpec
from understudy.kube.api import Kube
from understudy.kube.kind import PYTORCHJOB, TRAINJOB
from understudy.kube.objects import KubernetesObject
from understudy.kube.settings import Cluster, parsed
from understudy.launch.kubernetes.rendering import trainjob
from understudy.launch.kubernetes.rendering.task_config import TaskConfig
from understudy.recipe import Resources

MANIFEST = ROOT / "manifests" / "components" / "trainer" / "runtime.yaml"


@pytest.fixture
def runtime() -> dict[str, Any]:
    """The TrainingRuntime of the manifests."""
    return dict(yaml.safe_load(MANIFEST.read_text()))


def nodes(runtime: dict[str, Any]) -> dict[str, Any]:
    """The Job of the runtime whose pods are a TrainJob's nodes."""
    [job] = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    assert job["name"] == trainjob.NODE
    return dict(job["template"]["spec"])


def filled_in(runtime: dict[str, Any], job: dict[str, Any]) -> dict[str, Any]:
    """The pod that the Trainer makes of both: as pkg/runtime of its release 2.1.0 merges them."""
    pod_template = copy.deepcopy(nodes(runtime)["template"])
    [container], ranks = pod_template["spec"]["containers"], job["spec"]["trainer"]
    mounts = {mount["mountPath"]: mount for mount in container.get("volumeMounts", ())}
    for override in job["spec"]["podTemplateOverrides"]:
        assert override["targetJobs"] == [{"name": trainjob.NODE}]
        pod_template["metadata"] = override.get("metadata", pod_template.get("metadata"))
        [change] = override["spec"]["containers"]
        assert change["name"] == container["name"] == TRAINJOB.container
        pod_template["spec"] |= {field: value for field, value in override["spec"].items() if field != "containers"}
        assert len({mount["name"] for mount in change["volumeMounts"]}) == len(change["volumeMounts"]), "a map by name"
        mounts |= {mount["mountPath"]: mount for mount in change["volumeMounts"]}
    container |= {"image": ranks["image"], "command": ranks["command"], "env": ranks["env"]}
    container |= {"resources": ranks["resourcesPerNode"], "volumeMounts": list(mounts.values())}
    return pod_template


CACHED = parsed({**CLUSTER.model_dump(mode="json"), "cache": {"emptyDir": {"sizeLimit": "2Gi"}}}, "cluster.yaml")


@pytest.mark.parametrize("cluster", [CLUSTER, CACHED, CLUSTER.model_copy(update={"one_node": True})])
@pytest.mark.parametrize("resources", [{}, {"pool": "a100", "memory": "64Gi", "cpu": "8"}])
def test_a_train_job_and_its_runtime_make_the_pod_that_a_pytorchjob_has(
    three_nodes: JobSpec, runtime: dict[str, Any], cluster: Cluster, resources: dict[str, Any]
) -> None:
    task = TaskConfig(node_selector={"zone": "b"}, env=({"name": "A", "value": "1"},))  # type: ignore[arg-type]
    filled = filled_in(runtime, trainer(three_nodes, cluster, task, **resources))
    expected = template(pytorch(three_nodes, cluster, task, **resources))
    assert filled["spec"].pop("restartPolicy") == "Never", "the whole JobSet is restarted"
    expected["spec"]["containers"][0]["name"] = TRAINJOB.container
    for pod in (filled, expected):
        pod["spec"]["containers"][0]["volumeMounts"].sort(key=lambda mount: mount["mountPath"])
    assert filled == expected


def test_the_trainer_s_types_know_every_field(three_nodes: JobSpec, runtime: dict[str, Any]) -> None:
    job = trainer(three_nodes, CACHED, pool="a100", queue="q", memory="1Gi")
    for value, schema in ((job, TrainerV1alpha1TrainJob), (runtime, TrainerV1alpha1TrainingRuntime)):
        parsed_value = schema.from_dict(value)
        assert parsed_value is not None
        assert json.loads(parsed_value.to_json()) == value


def test_it_has_the_name_labels_and_owner_of_any_other_job(three_nodes: JobSpec) -> None:
    job = trainer(three_nodes)
    assert job["metadata"] == pytorch(three_nodes)["metadata"]
    assert job["metadata"]["ownerReferences"] == [OWNER]
    assert len(f"{RUN.name}-node-0-999") <= 63, "the name of its first pods' hosts"


@pytest.mark.parametrize(("queue", "suspended"), [(None, False), ("team", True)])
def test_a_queued_train_job_begins_suspended(three_nodes: JobSpec, queue: str | None, suspended: bool) -> None:
    job = trainer(three_nodes, queue=queue)
    assert TRAINJOB.is_suspended(job) == suspended
    assert job["metadata"]["labels"].get("kueue.x-k8s.io/queue-name") == queue


def test_an_elastic_train_job_is_refused(three_nodes: JobSpec) -> None:
    with pytest.raises(
        InputError, match=r"resources\.teacher\.min_nodes: 2; .* has a fixed number of nodes.*pytorchjob"
    ):
        trainer(three_nodes, min_nodes=2)
    assert trainer(three_nodes, min_nodes=3)["spec"]["trainer"]["numNodes"] == 3


# Failed pods


def test_a_final_exit_code_fails_the_job_and_any_other_restarts_every_pod(
    runtime: dict[str, Any],
) -> None:
    job, jobs = nodes(runtime), runtime["spec"]["template"]["spec"]["failurePolicy"]
    [rule] = job["podFailurePolicy"]["rules"]
    for_good = rule["onExitCodes"]["values"]
    assert {FAILED, InputError.exit_code, exit_codes.STOPPED_AT_CHECKPOINT} <= set(for_good)
    assert not {exit_codes.KILLED, exit_codes.PEERS_LOST, exit_codes.HUNG, exit_codes.EVICTED} & set(for_good)
    assert (rule["action"], rule["onExitCodes"]["containerName"]) == ("FailJob", TRAINJOB.container)
    assert job["backoffLimit"] == 0
    fails, again = jobs["rules"]
    assert (fails["action"], fails["onJobFailureReasons"]) == ("FailJobSet", ["PodFailurePolicy"])
    assert again["action"] == "RestartJobSetAndIgnoreMaxRestarts"
    assert jobs["restartStrategy"] == "BlockingRecreate", "the nodes meet at a fixed place"


def test_a_finished_train_job_is_not_run_again(runtime: dict[str, Any]) -> None:
    assert "ttlSecondsAfterFinished" not in runtime["spec"]["template"]["spec"], "the Trainer would make it anew"


# What only the runtime can say


def namespace(runtime: KubernetesObject | None) -> Kube:
    return cast(Kube, SimpleNamespace(namespace="here", training_runtime=lambda name: runtime))


def changed(runtime: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """The runtime with other values in its pod; None takes one away."""
    copied = copy.deepcopy(runtime)
    spec = nodes(copied)["template"]["spec"]
    for field, value in fields.items():
        spec.pop(field, None) if value is None else spec.update({field: value})
    return copied


NVME = {"ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "nvme"}}}}


@pytest.mark.parametrize(
    ("resources", "cache", "lacks", "has", "message"),
    [
        (
            {"priority": "high"},
            None,
            {},
            {"priorityClassName": "high"},
            r"resources\.teacher\.priority: high; .*\(none\)",
        ),
        (
            {"termination_grace_period": 90},
            None,
            {},
            {"terminationGracePeriodSeconds": 120},
            r"resources\.teacher\.termination_grace_period: 90; .* gives a pod 60 s",
        ),
        ({}, None, {"terminationGracePeriodSeconds": None}, {}, r"termination_grace_period: 60; .* gives a pod 30 s"),
        ({}, NVME, {}, {"securityContext": {"fsGroup": 1000}}, r"cache: .* needs fsGroup 1000"),
        ({"min_nodes": 1}, None, {}, None, r"resources\.teacher\.min_nodes: 1; "),
    ],
)
def test_a_setting_that_only_the_runtime_could_have_is_refused_unless_it_has_it(
    runtime: dict[str, Any],
    resources: dict[str, Any],
    cache: dict[str, Any] | None,
    lacks: dict[str, Any],
    has: dict[str, Any] | None,
    message: str,
) -> None:
    cluster = CLUSTER.model_copy(update={"cache": cache})
    requested = Resources(nodes=2, **resources)
    with pytest.raises(InputError, match=message + r".*or set launcher: pytorchjob in the cluster's settings"):
        trainjob.check(namespace(changed(runtime, **lacks)), cluster, requested, "resources.teacher")
    if has is not None:
        trainjob.check(namespace(changed(runtime, **has)), cluster, requested, "resources.teacher")


def test_a_namespace_without_the_runtime_is_an_error_with_the_fix(runtime: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"here: there is no TrainingRuntime understudy.* components/trainer"):
        trainjob.check(namespace(None), CLUSTER, Resources(), "resources.teacher")
    complete = copy.deepcopy(runtime)
    container = nodes(complete)["template"]["spec"]["containers"][0]
    container["volumeMounts"] = [{"name": "store", "mountPath": "/understudy", "readOnly": True}]
    with pytest.raises(
        InputError, match="TrainingRuntime understudy: it mounts the whole store, of an earlier version"
    ):
        trainjob.check(namespace(complete), CLUSTER, Resources(), "resources.teacher")
    runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["name"] = "worker"
    with pytest.raises(InputError, match="TrainingRuntime understudy: has no replicated job node"):
        trainjob.check(namespace(runtime), CLUSTER, Resources(), "resources.teacher")


def test_fields_of_a_pools_patch_that_need_the_runtime_are_refused_unless_it_has_them(
    runtime: dict[str, Any],
) -> None:
    values = CLUSTER.model_dump(mode="json")
    values["pools"]["a100"]["pod_patch"] = {
        "metadata": {"annotations": {"a": "b"}},
        "spec": {"imagePullSecrets": [{"name": "r"}], "runtimeClassName": "nvidia"},
    }
    cluster, requested = parsed(values, "cluster.yaml"), Resources(nodes=2, pool="a100")
    message = (
        r"pod_patch\.spec\.runtimeClassName: a TrainJob has no field for it.* has none\. Patch it there.*pytorchjob"
    )
    with pytest.raises(InputError, match=message):
        trainjob.check(namespace(runtime), cluster, requested, "resources.teacher")
    trainjob.check(namespace(changed(runtime, runtimeClassName="nvidia")), cluster, requested, "resources.teacher")
    trainjob.check(namespace(runtime), cluster, Resources(nodes=2), "resources.teacher")


def test_kinds_are_distinguished_by_their_operators_labels() -> None:
    assert (PYTORCHJOB.container, PYTORCHJOB.succeeded) == ("pytorch", "Succeeded")
    assert (TRAINJOB.container, TRAINJOB.succeeded) == ("node", "Complete")
