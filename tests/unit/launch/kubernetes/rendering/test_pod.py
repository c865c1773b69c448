import json
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.jobs.specs import HOME, WORK, evaluation_spec, with_payload
from tests.unit.launch.kubernetes.rendered import CLUSTER, pod, pytorch, template
from understudy.agent import node_cache
from understudy.errors import InputError
from understudy.jobs.payload import Serving
from understudy.jobs.specification import JobSpec
from understudy.kube.settings import PREFERRED, REQUIRED, parsed


def test_ranks_get_no_credentials(three_nodes: JobSpec) -> None:
    assert "secret" not in json.dumps(pytorch(three_nodes)).lower()


def test_a_pool_gives_node_labels_and_the_number_of_gpus(three_nodes: JobSpec) -> None:
    rendered = pod(pytorch(three_nodes, pool="a100", memory="64Gi", cpu="8"))
    assert rendered["nodeSelector"] == {"gpu": "a100"}
    assert rendered["tolerations"][0] == {"key": "nvidia.com/gpu", "operator": "Exists"}
    resources = rendered["containers"][0]["resources"]
    assert resources["requests"] == {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "2"}
    assert resources["limits"] == {"memory": "64Gi", "nvidia.com/gpu": "2"}
    packed = rendered["affinity"]["podAffinity"][PREFERRED][0]["podAffinityTerm"]
    assert packed["topologyKey"] == "topology.kubernetes.io/rack"


def test_pods_of_a_job_would_rather_have_a_node_each(three_nodes: JobSpec) -> None:
    rendered = pytorch(three_nodes)
    [rule] = pod(rendered)["affinity"]["podAntiAffinity"][PREFERRED]
    term = rule["podAffinityTerm"]
    assert term["topologyKey"] == "kubernetes.io/hostname"
    labels = template(rendered)["metadata"]["labels"]
    assert term["labelSelector"]["matchLabels"].items() <= labels.items()
    assert "podAntiAffinity" not in pod(pytorch(three_nodes, CLUSTER.model_copy(update={"one_node": True})))["affinity"]


def test_a_pool_that_does_not_exist_is_refused_with_those_that_do(three_nodes: JobSpec) -> None:
    with pytest.raises(InputError, match=r"resources\.teacher\.pool: this cluster has no pool 'h100' \(it has a100\)"):
        pytorch(three_nodes, pool="h100")


def test_ranks_go_to_nodes_that_mount_the_store_of_one_node(three_nodes: JobSpec) -> None:
    rendered = pytorch(three_nodes, CLUSTER.model_copy(update={"one_node": True}), pool="a100")
    rules = pod(rendered)["affinity"]["podAffinity"]
    assert PREFERRED in rules, "the pool's rack still counts"
    [term] = rules[REQUIRED]
    assert term["topologyKey"] == "kubernetes.io/hostname"
    labels = template(rendered)["metadata"]["labels"]
    assert term["labelSelector"]["matchLabels"].items() <= labels.items()


def test_the_rules_of_a_pool_stay_beside_ours(three_nodes: JobSpec) -> None:
    pods = {REQUIRED: [{"topologyKey": "zone"}], PREFERRED: [{"weight": 1}]}
    theirs = {"nodeAffinity": {"preferred": []}, "podAffinity": pods, "podAntiAffinity": {"required": []}}
    pool = CLUSTER.pools["a100"].model_copy(update={"affinity": theirs})
    rendered = pod(
        pytorch(three_nodes, CLUSTER.model_copy(update={"pools": {"a100": pool}, "one_node": True}), pool="a100")
    )
    assert rendered["affinity"]["nodeAffinity"] == theirs["nodeAffinity"]
    assert rendered["affinity"]["podAntiAffinity"] == theirs["podAntiAffinity"]
    rules = rendered["affinity"]["podAffinity"]
    assert [term["topologyKey"] for term in rules[REQUIRED]] == ["zone", "kubernetes.io/hostname"]
    assert [term["weight"] for term in rules[PREFERRED]] == [1, 100]


NVME = {"volumeClaimTemplate": {"spec": {"storageClassName": "nvme"}}}


@pytest.mark.parametrize(
    ("cache", "limit", "group"),
    [
        ({"emptyDir": {"sizeLimit": "2Gi"}}, str(2 * 2**30), None),
        ({"ephemeral": NVME}, None, 1000),
        ({"persistentVolumeClaim": {"claimName": "local"}}, None, 1000),
        ({"csi": {"driver": "nvme.example"}}, None, 1000),
    ],
)
def test_a_cache_is_a_volume_that_ranks_can_write(
    three_nodes: JobSpec, cache: dict[str, Any], limit: str | None, group: int | None
) -> None:
    settings = parsed({**CLUSTER.model_dump(mode="json"), "cache": cache}, "cluster.yaml")
    rendered = pod(pytorch(three_nodes, settings))
    ranks = rendered["containers"][0]
    assert {"name": "cache", **cache} in rendered["volumes"]
    mounted = {mount["name"]: mount["mountPath"] for mount in ranks["volumeMounts"]}
    environment = {variable["name"]: variable.get("value") for variable in ranks["env"]}
    assert environment[node_cache.CACHE] == mounted["cache"]
    assert environment.get(node_cache.LIMIT) == limit
    assert rendered["securityContext"].get("fsGroup") == group


def test_ranks_write_into_their_own_work_and_see_no_other_jobs(three_nodes: JobSpec) -> None:
    teacher = f"{HOME}/store/objects/{'7' * 64}"
    spec = with_payload(three_nodes, teacher=teacher, initial=f"{WORK}/initial")
    rendered = pod(pytorch(spec))
    mounts = {
        mount["mountPath"]: mount for mount in rendered["containers"][0]["volumeMounts"] if mount["name"] == "store"
    }
    assert {path for path, mount in mounts.items() if not mount.get("readOnly")} == {
        f"{WORK}/job",
        f"{HOME}/store/runs/run/logs/teacher",
    }
    assert {path for path, mount in mounts.items() if mount.get("readOnly")} == {
        WORK,  # the launcher's sign of life, and the fetched model
        f"{HOME}/store/objects/{'e' * 64}",
        teacher,
    }
    for path, mount in mounts.items():
        assert f"{CLUSTER.mount}/{mount['subPath']}" == path, "where the launcher has it"
    assert sum("persistentVolumeClaim" in volume for volume in rendered["volumes"]) == 1, (
        "twice, and the pod never starts"
    )


def test_who_measures_reads_models_and_writes_into_its_own_work_alone(three_nodes: JobSpec) -> None:
    objects = {name: f"{HOME}/store/objects/{name[0] * 64}" for name in ("examples", "records", "teacher", "champion")}
    models = {role: objects[role] for role in ("teacher", "champion")}
    job = evaluation_spec("", examples=objects["examples"], records=objects["records"], models=models)
    rendered = pod(pytorch(job))
    mounts = {
        mount["mountPath"]: mount for mount in rendered["containers"][0]["volumeMounts"] if mount["name"] == "store"
    }
    read = {path for path, mount in mounts.items() if mount.get("readOnly")}
    assert read == {WORK, *objects.values()}
    assert mounts.keys() - read == {f"{WORK}/job", f"{HOME}/store/runs/run/logs/evaluate"}
    assert rendered["automountServiceAccountToken"] is False
    assert not any(
        "valueFrom" in variable and "secretKeyRef" in variable["valueFrom"]
        for variable in rendered["containers"][0]["env"]
    )


def test_who_scores_a_version_reads_its_steps_folder_and_has_no_credentials(three_nodes: JobSpec) -> None:
    job = replace(evaluation_spec(f"{WORK}/job"), role="serving", payload=Serving(folder=f"{WORK}/served"))
    job = replace(job, logs=three_nodes.logs)
    rendered = pod(pytorch(job))
    mounts = {
        mount["mountPath"]: mount for mount in rendered["containers"][0]["volumeMounts"] if mount["name"] == "store"
    }
    assert {path for path, mount in mounts.items() if mount.get("readOnly")} == {WORK}
    assert mounts.keys() - {WORK} == {f"{WORK}/job", f"{HOME}/store/runs/run/logs/serving"}
    assert rendered["automountServiceAccountToken"] is False
    assert not any(
        "valueFrom" in variable and "secretKeyRef" in variable["valueFrom"]
        for variable in rendered["containers"][0]["env"]
    )


def test_a_store_that_is_not_on_the_claim_is_refused(three_nodes: JobSpec) -> None:
    elsewhere = CLUSTER.model_copy(update={"mount": "/var/lib/under"})
    with pytest.raises(
        InputError, match=r"UNDERSTUDY_HOME: .* is not on the claim, which pods mount at /var/lib/under "
    ):
        pytorch(three_nodes, elsewhere)


def test_without_a_cache_no_pod_has_one(three_nodes: JobSpec) -> None:
    rendered = json.dumps(pod(pytorch(three_nodes)))
    assert node_cache.CACHE not in rendered
    assert '"name": "cache"' not in rendered
