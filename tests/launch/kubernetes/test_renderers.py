import json
from dataclasses import replace
from typing import Any

import pytest
from kubeflow_trainer_api.models.trainer_v1alpha1_train_job import TrainerV1alpha1TrainJob

from tests.jobs.specs import with_resources
from understudy.agent import node, node_cache
from understudy.errors import InputError
from understudy.jobs.specification import JobSpec
from understudy.launch.kubernetes import pytorchjob, trainjob
from understudy.launch.kubernetes.pytorchjob import Identity
from understudy.launch.kubernetes.settings import PREFERRED, REQUIRED, Cluster, Pool, parsed
from understudy.launch.local import launcher
from understudy.recipe import Resources

CLUSTER = Cluster(
    image="registry.example/understudy-trainer:0.1.0",
    claim="store",
    pools={
        "a100": Pool(
            node_selector={"gpu": "a100"},
            tolerations=({"key": "nvidia.com/gpu", "operator": "Exists"},),
            gpu="nvidia.com/gpu",
            topology="topology.kubernetes.io/rack",
        )
    },
)
RUN = Identity("20260101-000000-abc", "teacher", "0123456789abcdef" * 4)
OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "driver", "uid": "1"}


@pytest.fixture
def spec(job: JobSpec) -> JobSpec:
    return replace(with_resources(job, nodes=3, processes=2), supervised=True)


def pytorch(spec: JobSpec, cluster: Cluster = CLUSTER, **resources: Any) -> dict[str, Any]:
    return pytorchjob.render(spec, RUN, Resources(nodes=3, processes=2, **resources), cluster, OWNER)


def pod(job: dict[str, Any]) -> dict[str, Any]:
    return job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]


def test_ranks_get_no_credentials(spec: JobSpec) -> None:
    trainer = trainjob.render(spec, RUN, Resources(nodes=3, processes=2), CLUSTER, OWNER)
    assert "secret" not in json.dumps([pytorch(spec), trainer]).lower()


# One specification, three launchers


def test_all_launchers_start_the_same_command_with_the_same_world(spec: JobSpec) -> None:
    operator = pytorch(spec)
    trainer = trainjob.render(spec, RUN, Resources(nodes=3, processes=2), CLUSTER, OWNER)["spec"]["trainer"]
    commands = [launcher.command(spec, spec.path), pod(operator)["containers"][0]["command"], trainer["command"]]
    assert {tuple(command[1:]) for command in commands} == {tuple(commands[0][1:])}
    policy = operator["spec"]["elasticPolicy"]
    assert policy["minReplicas"] == policy["maxReplicas"] == trainer["numNodes"] == spec.nodes
    assert operator["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == spec.nodes
    assert policy["nProcPerNode"] == trainer["numProcPerNode"] == spec.processes


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            {
                "PET_NNODES": "3:3",
                "PET_RDZV_ID": "x",
                "PET_RDZV_BACKEND": "c10d",
                "PET_RDZV_ENDPOINT": "x-worker-0:29400",
            },
            {
                "min_nodes": 3,
                "max_nodes": 3,
                "run_id": "x",
                "rdzv_backend": "c10d",
                "rdzv_endpoint": "x-worker-0:29400",
            },
        ),
        (
            {"PET_NNODES": "3", "PET_NODE_RANK": "2", "PET_MASTER_ADDR": "x-node-0", "PET_MASTER_PORT": "29500"},
            {
                "min_nodes": 3,
                "max_nodes": 3,
                "run_id": "none",
                "rdzv_backend": "static",
                "rdzv_endpoint": "x-node-0:29500",
                "rdzv_configs": {"rank": 2},
            },
        ),
    ],
)
def test_nodes_find_each_other_as_either_operator_says(given: dict[str, str], expected: dict[str, Any]) -> None:
    assert node.world(given) == expected


def test_a_train_job_is_what_the_api_s_schema_allows(spec: JobSpec) -> None:
    made = trainjob.render(spec, RUN, Resources(nodes=3, processes=2, pool="a100", queue="q"), CLUSTER, OWNER)
    parsed_job = TrainerV1alpha1TrainJob.from_dict(made)
    assert parsed_job is not None
    assert json.loads(parsed_job.to_json()) == made


# The PyTorchJob


def test_a_job_has_workers_only_so_that_no_init_container_is_added(spec: JobSpec) -> None:
    assert list(pytorch(spec)["spec"]["pytorchReplicaSpecs"]) == ["Worker"]


def test_a_pool_says_where_and_how_many_gpus(spec: JobSpec) -> None:
    made = pod(pytorch(spec, pool="a100", memory="64Gi", cpu="8"))
    assert made["nodeSelector"] == {"gpu": "a100"}
    assert made["tolerations"][0] == {"key": "nvidia.com/gpu", "operator": "Exists"}
    asked = made["containers"][0]["resources"]
    assert asked["requests"] == {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "2"}
    assert asked["limits"] == {"memory": "64Gi", "nvidia.com/gpu": "2"}
    packed = made["affinity"]["podAffinity"][PREFERRED][0]["podAffinityTerm"]
    assert packed["topologyKey"] == "topology.kubernetes.io/rack"


def test_pods_of_a_job_would_rather_have_a_node_each(spec: JobSpec) -> None:
    made = pytorch(spec)
    [rule] = pod(made)["affinity"]["podAntiAffinity"][PREFERRED]
    term = rule["podAffinityTerm"]
    assert term["topologyKey"] == "kubernetes.io/hostname"
    labels = made["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["metadata"]["labels"]
    assert term["labelSelector"]["matchLabels"].items() <= labels.items()
    assert "podAntiAffinity" not in pod(pytorch(spec, CLUSTER.model_copy(update={"one_node": True})))["affinity"]


def test_a_pool_that_does_not_exist_is_refused_with_those_that_do(spec: JobSpec) -> None:
    with pytest.raises(InputError, match=r"resources\.teacher\.pool: this cluster has no pool 'h100', but a100"):
        pytorch(spec, pool="h100")


def test_where_one_node_has_the_store_ranks_go_to_the_others_that_mount_it(spec: JobSpec) -> None:
    made = pytorch(spec, CLUSTER.model_copy(update={"one_node": True}), pool="a100")
    rules = pod(made)["affinity"]["podAffinity"]
    assert PREFERRED in rules, "the pool's rack still counts"
    [term] = rules[REQUIRED]
    assert term["topologyKey"] == "kubernetes.io/hostname"
    labels = made["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["metadata"]["labels"]
    assert term["labelSelector"]["matchLabels"].items() <= labels.items()


def test_the_rules_of_a_pool_stay_beside_ours(spec: JobSpec) -> None:
    pods = {REQUIRED: [{"topologyKey": "zone"}], PREFERRED: [{"weight": 1}]}
    theirs = {"nodeAffinity": {"preferred": []}, "podAffinity": pods, "podAntiAffinity": {"required": []}}
    pool = CLUSTER.pools["a100"].model_copy(update={"affinity": theirs})
    made = pod(pytorch(spec, CLUSTER.model_copy(update={"pools": {"a100": pool}, "one_node": True}), pool="a100"))
    assert made["affinity"]["nodeAffinity"] == theirs["nodeAffinity"]
    assert made["affinity"]["podAntiAffinity"] == theirs["podAntiAffinity"]
    rules = made["affinity"]["podAffinity"]
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
    spec: JobSpec, cache: dict[str, Any], limit: str | None, group: int | None
) -> None:
    settings = parsed({**CLUSTER.model_dump(mode="json"), "cache": cache}, "cluster.yaml")
    made = pod(pytorch(spec, settings))
    ranks = made["containers"][0]
    assert {"name": "cache", **cache} in made["volumes"]
    mounted = {mount["name"]: mount["mountPath"] for mount in ranks["volumeMounts"]}
    environment = {variable["name"]: variable.get("value") for variable in ranks["env"]}
    assert environment[node_cache.CACHE] == mounted["cache"]
    assert environment.get(node_cache.LIMIT) == limit
    assert made["securityContext"].get("fsGroup") == group


def test_the_store_is_there_once_more_to_be_read_only(spec: JobSpec) -> None:
    [ranks] = pod(pytorch(spec))["containers"]
    environment = {variable["name"]: variable.get("value") for variable in ranks["env"]}
    whole, _, view = environment[node_cache.READ_ONLY].partition(":")
    store = [mount for mount in ranks["volumeMounts"] if mount["name"] == "store"]
    assert store == [
        {"name": "store", "mountPath": whole},
        {"name": "store", "mountPath": view, "readOnly": True},
    ]
    assert whole == CLUSTER.mount


def test_without_a_cache_no_pod_has_one(spec: JobSpec) -> None:
    made = json.dumps(pod(pytorch(spec)))
    assert node_cache.CACHE not in made
    assert '"name": "cache"' not in made


@pytest.mark.parametrize(("asked", "default", "queue"), [(None, None, None), (None, "a", "a"), ("b", "a", "b")])
def test_a_queued_job_begins_suspended(
    spec: JobSpec, asked: str | None, default: str | None, queue: str | None
) -> None:
    made = pytorch(spec, CLUSTER.model_copy(update={"queue": default}), queue=asked)
    assert made["metadata"]["labels"].get("kueue.x-k8s.io/queue-name") == queue
    assert made["spec"]["runPolicy"].get("suspend") == (True if queue else None)


def test_a_job_goes_with_its_owner(spec: JobSpec) -> None:
    assert pytorch(spec)["metadata"]["ownerReferences"] == [OWNER]


def test_names_differ_by_run_and_by_work_and_by_nothing_else() -> None:
    names = {RUN.name, Identity("other", RUN.step, RUN.key).name, Identity(RUN.run, RUN.step, "f" * 64).name}
    assert len(names) == 3
    assert Identity(RUN.run, RUN.step, RUN.key).name == RUN.name
    assert all(len(f"{name}-worker-999") <= 63 and name[0].isalpha() for name in names)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"claim": "store"}, r"cluster.yaml: image: Field required"),
        ({"image": "i", "claim": "c", "queues": []}, r"cluster.yaml: queues: Extra inputs"),
        ({"image": "i", "claim": "c", "pools": {"a": {"gpus": 1}}}, r"cluster.yaml: pools\.a\.gpus: Extra inputs"),
        ({"image": "i", "claim": "c", "patience": 60}, r"cluster.yaml: patience: it is called launcher_timeout now"),
        (None, r"cluster.yaml: the file: "),
        ({"image": "i", "claim": "c", "cache": {"hostPath": {"path": "/x"}}}, r"cache: .*one of csi, .*no hostPath"),
        ({"image": "i", "claim": "c", "cache": {"csi": {}, "emptyDir": {}}}, r"cache: .*one of csi, emptyDir"),
        ({"image": "i", "claim": "c", "cache": {"emptyDir": {}}}, r"cache: .*emptyDir needs a sizeLimit such as 20Gi"),
        ({"image": "i", "claim": "c", "cache": "20Gi"}, r"cache: "),
        ({"image": "i", "claim": "c", "mount": "//understudy"}, r"mount: .*not /understudy, nor above or below it"),
        ({"image": "i", "claim": "c", "mount": "/understudy/x/"}, r"mount: .*not /understudy, nor above or below it"),
        ({"image": "i", "claim": "c", "mount": "run"}, r"mount: "),
    ],
)
def test_settings_that_are_wrong_are_named(values: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parsed(values, "cluster.yaml")
