"""A pool's patch in the pods of jobs, of both operators."""

import copy
from typing import Any

from kubeflow_trainer_api.models.trainer_v1alpha1_train_job import TrainerV1alpha1TrainJob
from kubernetes import client

from tests.unit.kube.test_pod_patch import RDMA
from tests.unit.launch.kubernetes.rendered import CLUSTER, pytorch, template, trainer
from understudy.jobs.specification import JobSpec
from understudy.kube import pod_patch
from understudy.kube.settings import Cluster, parsed

ADDED = ("runtimeClassName", "schedulerName", "imagePullSecrets", "resourceClaims", "topologySpreadConstraints")


def patched(patch: dict[str, Any]) -> Cluster:
    values = CLUSTER.model_dump(mode="json")
    values["pools"]["a100"]["pod_patch"] = patch
    return parsed(values, "cluster.yaml")


def test_a_patch_adds_and_takes_nothing_away(three_nodes: JobSpec) -> None:
    before, after = pytorch(three_nodes, pool="a100"), pytorch(three_nodes, patched(RDMA), pool="a100")
    plain, merged = template(before), template(after)
    assert merged["metadata"]["annotations"] == RDMA["metadata"]["annotations"]
    assert merged["metadata"]["labels"] == plain["metadata"]["labels"] | RDMA["metadata"]["labels"]
    assert {name: merged["spec"].pop(name) for name in ADDED} == {name: RDMA["spec"][name] for name in ADDED}
    [ours], [ranks] = plain["spec"].pop("containers"), merged["spec"].pop("containers")
    [added] = RDMA["spec"]["containers"]
    assert ranks["resources"]["limits"] == {"nvidia.com/gpu": "2", **added["resources"]["limits"]}
    assert ranks["resources"]["requests"] == {"nvidia.com/gpu": "2", **added["resources"]["limits"]}
    assert ranks["resources"]["claims"] == added["resources"]["claims"]
    assert [entry for entry in ranks["env"] if entry not in added["env"]] == ours["env"]
    assert [entry for entry in ranks["volumeMounts"] if entry not in added["volumeMounts"]] == ours["volumeMounts"]
    for field in ours.keys() - {"resources", "env", "volumeMounts"}:
        assert ranks[field] == ours[field]
    assert [entry for entry in merged["spec"].pop("volumes") if entry not in RDMA["spec"]["volumes"]] == plain[
        "spec"
    ].pop("volumes")
    assert merged["spec"] == plain["spec"]


def test_other_pools_have_nothing_of_it(three_nodes: JobSpec) -> None:
    assert pytorch(three_nodes, patched(RDMA)) == pytorch(three_nodes)


def test_a_variable_of_the_pool_is_instead_of_the_cluster_s(three_nodes: JobSpec) -> None:
    patch = {"spec": {"containers": [{"name": "node", "env": [{"name": "NCCL_DEBUG", "value": "INFO"}]}]}}
    cluster = patched(patch).model_copy(update={"environment": {"NCCL_DEBUG": "WARN"}})
    environment = template(pytorch(three_nodes, cluster, pool="a100"))["spec"]["containers"][0]["env"]
    assert [entry["value"] for entry in environment if entry["name"] == "NCCL_DEBUG"] == ["INFO"]


def test_no_patch_can_name_a_variable_that_the_launcher_sets(three_nodes: JobSpec) -> None:
    cached = CLUSTER.model_copy(update={"cache": {"emptyDir": {"sizeLimit": "1Gi"}}})
    environment = template(pytorch(three_nodes, cached))["spec"]["containers"][0]["env"]
    assert [entry["name"] for entry in environment if not pod_patch.OWN_VARIABLES.match(entry["name"])] == []
    spec = template(pytorch(three_nodes, cached))["spec"]
    assert {volume["name"] for volume in spec["volumes"]} == pod_patch.OWN_VOLUMES
    paths = {mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"] if mount["name"] != "store"}
    assert paths == set(pod_patch.RESERVED_PATHS)
    labels = template(pytorch(three_nodes))["metadata"]["labels"]
    assert [name for name in labels if not pod_patch.OWN_LABELS.match(name)] == []


def test_a_train_job_has_it_too_except_for_fields_of_its_runtime(three_nodes: JobSpec) -> None:
    job = trainer(three_nodes, patched(RDMA), pool="a100")
    first = job["spec"]["podTemplateOverrides"][0]
    assert first["metadata"]["annotations"] == RDMA["metadata"]["annotations"]
    assert first["spec"]["imagePullSecrets"] == RDMA["spec"]["imagePullSecrets"]
    assert not {"runtimeClassName", "schedulerName", "resourceClaims"} & first["spec"].keys()
    mounts = [
        m for o in job["spec"]["podTemplateOverrides"] for c in o["spec"]["containers"] for m in c["volumeMounts"]
    ]
    assert RDMA["spec"]["containers"][0]["volumeMounts"][0] in mounts
    assert job["spec"]["trainer"]["resourcesPerNode"]["claims"] == [{"name": "nics"}]
    parsed_job = TrainerV1alpha1TrainJob.from_dict(copy.deepcopy(job))
    assert parsed_job is not None


def test_every_field_that_a_pool_may_set_is_one_of_kubernetes() -> None:
    for part, kind in (
        (pod_patch.PodPatch, client.V1PodTemplateSpec),
        (pod_patch.MetadataPatch, client.V1ObjectMeta),
        (pod_patch.PodSpecPatch, client.V1PodSpec),
        (pod_patch.ContainerPatch, client.V1Container),
        (pod_patch.ResourcesPatch, client.V1ResourceRequirements),
    ):
        assert part.__annotations__.keys() <= set(kind.attribute_map.values())
