"""The settings of a KFP task in the pods of its job: laws of the merge, and the settings that are never passed on."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.jobs.specs import job_spec, on_the_claim, with_resources
from understudy.errors import InputError
from understudy.jobs.specification import JobSpec
from understudy.kube.identity import Identity
from understudy.kube.settings import Cluster, Pool
from understudy.launch.kubernetes.rendering import pytorchjob, task_config, trainjob
from understudy.launch.kubernetes.rendering.task_config import NOTHING, TaskConfig
from understudy.recipe import Resources

CLUSTER = Cluster(
    image="registry.example/understudy-trainer:0.1.0",
    claim="understudy-store",
    environment={"NCCL_DEBUG": "INFO"},
    pools={
        "gpu": Pool(
            node_selector={"node-pool": "gpu", "zone": "a"},
            tolerations=({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},),
            affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}},
            gpu="nvidia.com/gpu",
            topology="rack",
        )
    },
)
RUN = Identity("run", "teacher", "0123456789abcdef" * 4)
# The JSON that the driver of a KFP 2.17 server writes for a task of a compiled pipeline on which nobody set anything.
PLAIN = """
{"affinity": null, "tolerations": null, "nodeSelector": null, "resources": {},
 "env": [{"name": "UNDERSTUDY_HOME", "value": "/var/lib/understudy/home"},
         {"name": "UNDERSTUDY_LAUNCHER", "value": "pytorchjob"},
         {"name": "UNDERSTUDY_CLUSTER", "value": "/etc/understudy/cluster.yaml"},
         {"name": "MLFLOW_TRACKING_USERNAME", "valueFrom": {"secretKeyRef":
          {"name": "understudy-mlflow", "key": "MLFLOW_TRACKING_USERNAME", "optional": true}}},
         {"name": "MLFLOW_TRACKING_PASSWORD", "valueFrom": {"secretKeyRef":
          {"name": "understudy-mlflow", "key": "MLFLOW_TRACKING_PASSWORD", "optional": true}}},
         {"name": "MLFLOW_TRACKING_URI", "valueFrom": {"configMapKeyRef":
          {"name": "understudy-environment", "key": "MLFLOW_TRACKING_URI"}}},
         {"name": "AWS_ENDPOINT_URL", "valueFrom": {"configMapKeyRef":
          {"name": "understudy-environment", "key": "AWS_ENDPOINT_URL", "optional": true}}},
         {"name": "AWS_SECRET_ACCESS_KEY", "valueFrom": {"secretKeyRef":
          {"name": "understudy-s3", "key": "AWS_SECRET_ACCESS_KEY", "optional": true}}}],
 "volumes": [{"name": "understudy-store", "persistentVolumeClaim": {"claimName": "understudy-store"}},
             {"name": "understudy", "configMap": {"name": "understudy", "optional": false}}],
 "volumeMounts": [{"name": "understudy-store", "mountPath": "/var/lib/understudy"},
                  {"name": "understudy", "mountPath": "/etc/understudy"}]}
"""


@pytest.fixture
def spec(job: JobSpec) -> JobSpec:
    return replace(on_the_claim(job), supervised=True)


def arrived(values: dict[str, Any]) -> TaskConfig:
    """The driver's JSON as a step reads it, through kfp's own type."""
    from kfp.dsl.executor import Executor
    from kfp.dsl.task_config import TaskConfig as Kfp

    configs: list[TaskConfig] = []

    def component(task: Kfp) -> None:
        task_config.hand_over(vars(task))
        configs.append(task_config.current_task())

    inputs = {"inputs": {"parameterValues": {"task": values}}, "outputs": {"outputFile": "/dev/null"}}
    Executor(executor_input=inputs, function_to_execute=component).execute()
    return configs[0]


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(task_config.VARIABLE, "{}")  # so that it is put back


def pod(spec: JobSpec, task: TaskConfig = NOTHING, **resources: Any) -> dict[str, Any]:
    requested = Resources(processes=2, **{"pool": "gpu", **resources})
    job = pytorchjob.render(spec, RUN, requested, CLUSTER, None, task)
    return dict(job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"])


def ranks(rendered: dict[str, Any]) -> dict[str, Any]:
    return dict(rendered["containers"][0])


def volumes(rendered: dict[str, Any]) -> dict[str, Any]:
    """The volume at each place."""
    sources = {volume["name"]: volume for volume in rendered["volumes"]}
    assert len(sources) == len(rendered["volumes"])
    return {mount["mountPath"]: sources[mount["name"]] for mount in ranks(rendered)["volumeMounts"]}


def with_volume(path: str, name: str = "data", **source: Any) -> TaskConfig:
    volume = {"name": name, **(source or {"persistentVolumeClaim": {"claimName": name}})}
    return arrived({"volumes": [volume], "volumeMounts": [{"name": name, "mountPath": path}]})


def test_a_task_on_which_nobody_set_anything_changes_nothing(spec: JobSpec) -> None:
    assert pod(spec, arrived(json.loads(PLAIN)), memory="8Gi", cpu="2") == pod(spec, memory="8Gi", cpu="2")
    assert pod(spec, arrived({})) == pod(spec)


def test_without_kfp_there_is_nothing_to_carry() -> None:
    task_config.hand_over({"node_selector": {"a": "b"}})
    task_config.hand_over(None)
    assert task_config.current_task() == NOTHING
    task_config.hand_over(dict.fromkeys(TaskConfig.model_fields))
    assert task_config.current_task() == NOTHING


# Where a job runs


def test_a_node_selector_wins_by_key_and_keeps_other_keys(spec: JobSpec) -> None:
    rendered = pod(spec, arrived({"nodeSelector": {"zone": "b", "gpu": "h100"}}))
    assert rendered["nodeSelector"] == {"node-pool": "gpu", "zone": "b", "gpu": "h100"}


names = st.dictionaries(st.sampled_from("abcd"), st.sampled_from("xyz"))


@given(ours=names, theirs=names)
def test_the_tasks_value_wins_and_no_key_is_lost(ours: dict[str, str], theirs: dict[str, str]) -> None:
    template = {"spec": {"nodeSelector": ours, "tolerations": [], "containers": [EMPTY], "volumes": []}}
    selector = TaskConfig(node_selector=theirs).merged(template, JOB, CLUSTER)["spec"]["nodeSelector"]
    assert theirs.items() <= selector.items()
    assert selector.keys() == {*ours, *theirs}
    assert all(selector[key] == value for key, value in ours.items() if key not in theirs)
    assert template["spec"]["nodeSelector"] == ours  # the arguments are not changed


EMPTY: dict[str, Any] = {"env": [], "volumeMounts": [], "resources": {"requests": {}, "limits": {}}}
JOB = job_spec("f", resources={"processes": 2})


def test_tolerations_are_added_and_replace_those_for_the_same_taint(spec: JobSpec) -> None:
    patient = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "tolerationSeconds": 300}
    spot = {"key": "spot", "operator": "Exists", "effect": "NoSchedule"}
    rendered = pod(spec, arrived({"tolerations": [patient, spot]}))["tolerations"]
    by_key = {toleration["key"]: toleration for toleration in rendered}
    assert len(by_key) == len(rendered) == 4
    assert by_key["node.kubernetes.io/unreachable"] == patient
    assert by_key["node.kubernetes.io/not-ready"]["tolerationSeconds"] == 30
    assert by_key["spot"] == spot
    assert by_key["nvidia.com/gpu"]["effect"] == "NoSchedule"


def test_a_toleration_for_another_effect_of_a_taint_is_added(spec: JobSpec) -> None:
    rendered = pod(spec, arrived({"tolerations": [{"key": "nvidia.com/gpu", "effect": "NoExecute"}]}))["tolerations"]
    assert {toleration["effect"] for toleration in rendered if toleration["key"] == "nvidia.com/gpu"} == {
        "NoSchedule",
        "NoExecute",
    }


def test_a_toleration_for_another_value_of_a_taint_is_added(spec: JobSpec) -> None:
    team = {"key": "nvidia.com/gpu", "operator": "Equal", "value": "team-a", "effect": "NoSchedule"}
    rendered = pod(spec, arrived({"tolerations": [team]}))["tolerations"]
    assert [toleration.get("value") for toleration in rendered if toleration["key"] == "nvidia.com/gpu"] == [
        None,
        "team-a",
    ]


def test_affinity_wins_by_rule(spec: JobSpec) -> None:
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {}}]}
    rendered = pod(spec, arrived({"affinity": {"nodeAffinity": preferred}}))["affinity"]
    assert rendered.keys() == {"nodeAffinity", "podAffinity", "podAntiAffinity"}
    assert (
        rendered["nodeAffinity"]
        == {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}} | preferred
    )
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": []}]}}
    assert pod(spec, arrived({"affinity": {"nodeAffinity": required}}))["affinity"]["nodeAffinity"] == required


# Settings that are passed on


def test_a_resource_that_the_task_names_is_the_tasks_alone(spec: JobSpec) -> None:
    task = arrived({"resources": {"requests": {"memory": "64Gi"}, "limits": {"nvidia.com/gpu": "4"}}})
    rendered = ranks(pod(spec, task, memory="8Gi", cpu="2"))["resources"]
    assert rendered["requests"] == {"cpu": "2", "memory": "64Gi", "nvidia.com/gpu": "4"}
    assert rendered["limits"] == {"nvidia.com/gpu": "4"}  # a limit of 8Gi would refuse the request


def test_gpus_of_the_task_need_no_pool_and_are_enough_for_every_process(spec: JobSpec) -> None:
    task = arrived({"resources": {"limits": {"nvidia.com/gpu": "2"}}})
    assert task.gpus == {"nvidia.com/gpu": "2"}
    rendered = ranks(pod(replace(spec, device="cuda"), task, pool=None))["resources"]
    assert rendered == {"requests": {"nvidia.com/gpu": "2"}, "limits": {"nvidia.com/gpu": "2"}}
    with pytest.raises(InputError, match=r"resources\.teacher\.processes: each of the 3 .* given 2 nvidia\.com/gpu"):
        pod(replace(with_resources(spec, processes=3), device="cuda"), task)
    assert not arrived({"resources": {"limits": {"memory": "1Gi", "rdma/hca": "1"}}}).gpus


def test_variables_arrive_as_values_and_references_and_win_over_the_pools(spec: JobSpec) -> None:
    secret = {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}}
    task = arrived({"env": [{"name": "NCCL_DEBUG", "value": "WARN"}, secret, {"name": "EMPTY"}]})
    rendered = ranks(pod(spec, task))["env"]
    variables = {variable["name"]: variable for variable in rendered}
    assert len(variables) == len(rendered)
    assert variables["NCCL_DEBUG"] == {"name": "NCCL_DEBUG", "value": "WARN"}
    assert variables["HF_TOKEN"] == secret
    assert variables["EMPTY"] == {"name": "EMPTY"}
    assert variables["HF_HUB_OFFLINE"]["value"] == "1"
    assert "UNDERSTUDY_NODE" in variables


def test_no_rank_gets_mlflows_credentials_under_any_name(spec: JobSpec) -> None:
    renamed = {"name": "PW", "valueFrom": {"secretKeyRef": {"name": "understudy-mlflow", "key": "p"}}}
    values = [renamed, {"name": "MLFLOW_TRACKING_TOKEN", "value": "hunter2"}, *json.loads(PLAIN)["env"]]
    mounted = {"name": "understudy-mlflow", "mountPath": "/secret"}
    secret = {"name": "understudy-mlflow", "secret": {"secretName": "understudy-mlflow"}}
    text = json.dumps(pod(spec, arrived({"env": values, "volumes": [secret], "volumeMounts": [mounted]})))
    assert "understudy-mlflow" not in text
    assert "MLFLOW" not in text
    assert "hunter2" not in text


# Volumes


def test_a_volume_is_mounted_where_the_task_mounts_it(spec: JobSpec) -> None:
    rendered = pod(spec, with_volume("/data"))
    assert volumes(rendered)["/data"] == {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    assert volumes(rendered).keys() == {*volumes(pod(spec)), "/data"}


def test_the_store_is_mounted_once(spec: JobSpec) -> None:
    claim = {"persistentVolumeClaim": {"claimName": "understudy-store"}}
    assert pod(spec, with_volume("/var/lib/understudy/", "understudy-store", **claim)) == pod(spec)
    task = with_volume("/data", "understudy-store", **claim)
    with pytest.raises(InputError, match="mounts the store at /data, and its job's ranks may see no other job's"):
        pod(spec, task)
    [mount] = task.volume_mounts
    rendered = pod(spec, task.model_copy(update={"volume_mounts": ({**mount, "subPath": "corpus"},)}))
    assert sum(claim.items() <= volume.items() for volume in rendered["volumes"]) == 1
    assert volumes(rendered)["/data"] == volumes(rendered)[spec.folder]


@pytest.mark.parametrize(
    "part",
    [
        {"subPath": "."},
        {"subPath": "./"},
        {"subPath": ".."},
        {"subPath": "a/.."},
        {"subPath": "a/../../b"},
        {"subPath": "home"},
        {"subPath": "home/store/work"},
        {"subPath": "/home"},
        {"subPath": "a", "subPathExpr": "."},
    ],
    ids=str,
)
def test_no_part_of_the_store_reaches_ranks_by_way_of_a_task(spec: JobSpec, part: dict[str, str]) -> None:
    claim = {"persistentVolumeClaim": {"claimName": "understudy-store"}}
    task = with_volume("/data", "understudy-store", **claim)
    [mount] = task.volume_mounts
    with pytest.raises(InputError, match="mounts the store at /data"):
        pod(spec, task.model_copy(update={"volume_mounts": ({**mount, **part},)}))


def test_a_claim_that_may_only_be_read_stays_so(spec: JobSpec) -> None:
    claim = {"persistentVolumeClaim": {"claimName": "understudy-store", "readOnly": True}}
    task = with_volume("/data", "understudy-store", **claim)
    [mount] = task.volume_mounts
    rendered = pod(spec, task.model_copy(update={"volume_mounts": ({**mount, "subPath": "corpus"},)}))
    [data_mount] = [entry for entry in ranks(rendered)["volumeMounts"] if entry["mountPath"] == "/data"]
    assert data_mount["readOnly"] is True


def test_credentials_reach_no_rank_in_a_projected_volume(spec: JobSpec) -> None:
    sources = {"projected": {"sources": [{"secret": {"name": "understudy-mlflow"}}]}}
    assert "understudy-mlflow" not in json.dumps(pod(spec, with_volume("/data", "data", **sources)))


def test_two_volumes_that_take_one_name_stay_two(spec: JobSpec) -> None:
    claims = {"store": "one", "task-store": "two"}
    volumes_of_the_task = [
        {"name": name, "persistentVolumeClaim": {"claimName": claim}} for name, claim in claims.items()
    ]
    mounts = [{"name": name, "mountPath": f"/{name}"} for name in claims]
    rendered = volumes(pod(spec, arrived({"volumes": volumes_of_the_task, "volumeMounts": mounts})))
    assert {path: rendered[path]["persistentVolumeClaim"]["claimName"] for path in ("/store", "/task-store")} == {
        "/store": "one",
        "/task-store": "two",
    }


def test_nothing_else_is_mounted_at_the_stores_path(spec: JobSpec) -> None:
    with pytest.raises(InputError, match=r"mounts data at /var/lib/understudy, the store's path"):
        pod(spec, with_volume("/var/lib/understudy"))


@pytest.mark.parametrize("below", ["home", "home/store/objects", "home/../home/store/work", "/home"])
def test_nothing_else_is_mounted_over_paths_of_ranks(spec: JobSpec, below: str) -> None:
    with pytest.raises(InputError, match=r"mounts data at /var/lib/understudy/home.*, the store's path"):
        pod(spec, with_volume(f"/var/lib/understudy/{below}"))


def test_nothing_else_is_mounted_at_the_caches_path(spec: JobSpec) -> None:
    cluster = CLUSTER.model_copy(update={"cache": {"emptyDir": {"sizeLimit": "1Gi"}}})
    with pytest.raises(InputError, match=r"mounts data at /var/cache/understudy, the cache's path"):
        pytorchjob.render(spec, RUN, Resources(), cluster, None, with_volume("/var/cache/understudy"))


@pytest.mark.parametrize("name", ["store", "tmp", "shm"])
def test_a_volume_may_have_the_name_of_one_of_ours(spec: JobSpec, name: str) -> None:
    rendered = volumes(pod(spec, with_volume("/data", name)))
    assert rendered["/data"]["persistentVolumeClaim"] == {"claimName": name}
    assert rendered[spec.folder]["persistentVolumeClaim"] == {"claimName": "understudy-store"}


def test_a_volume_replaces_ours_at_its_path(spec: JobSpec) -> None:
    rendered = pod(spec, with_volume("/dev/shm"))
    assert volumes(rendered)["/dev/shm"]["name"] == "data"
    assert "shm" not in {volume["name"] for volume in rendered["volumes"]}


# Errors, and other launchers


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"tolerations": {"key": "a"}}, r"tolerations: "),
        ({"env": [{"value": "1"}]}, r"env\.0\.name: Field required"),
        ({"volumeMounts": [{"name": "a"}]}, r"volume_mounts\.0\.mountPath: Field required"),
        ({"resources": {"limits": {"memory": 5}}}, r"resources\.limits\.memory: "),
        ({"nodeSelector": "gpu"}, r"node_selector: "),
    ],
)
def test_a_value_that_kfp_does_not_write_is_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=f"a setting of the KFP task cannot be passed to its job: {message}"):
        arrived(values)


def test_invalid_json_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(task_config.VARIABLE, "{")
    with pytest.raises(InputError, match=rf"cannot be passed to its job: {task_config.VARIABLE}: Invalid JSON"):
        task_config.current_task()


def test_mounts_and_volumes_have_to_fit(spec: JobSpec) -> None:
    with pytest.raises(InputError, match="mounts data and has no volume of that name"):
        pod(spec, arrived({"volumeMounts": [{"name": "data", "mountPath": "/data"}]}))
    two = [{"name": "data", "secret": {"secretName": "data"}}, {"name": "data", "configMap": {"name": "data"}}]
    with pytest.raises(InputError, match="two different volumes called data"):
        pod(spec, arrived({"volumes": two}))


def test_a_train_job_gets_the_same(spec: JobSpec) -> None:
    task = arrived({"nodeSelector": {"gpu": "h100"}, "env": [{"name": "A", "value": "1"}]})
    rendered = trainjob.render(spec, RUN, Resources(processes=2), CLUSTER, None, task)["spec"]
    override = rendered["podTemplateOverrides"][0]
    assert override["spec"]["nodeSelector"].items() >= {"gpu": "h100"}.items()
    assert {"name": "A", "value": "1"} in rendered["trainer"]["env"]
