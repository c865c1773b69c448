"""From a compiled pipeline to the pods of a job: what KFP's driver makes of a task, as told here, and its executor."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from kfp import kubernetes
from kfp.compiler import Compiler
from kfp.dsl.executor import Executor

from tests.unit.jobs.specs import job_spec, on_the_claim
from understudy.jobs.specification import JobSpec
from understudy.kube.identity import Identity
from understudy.kube.settings import Cluster
from understudy.launch.kubernetes.rendering import pytorchjob, task_config
from understudy.launch.kubernetes.rendering.task_config import TaskConfig
from understudy.pipelines.distillation import build
from understudy.pipelines.pods import _let_out, settle
from understudy.recipe import Recipe, Resources
from understudy.steps import Result, tasks
from understudy.steps.measures import MEASURES

LAUNCHING = ["teacher", "distill", "control", "evaluate"]
CLUSTER = Cluster(image="trainer:1", claim="understudy-store")
FIELDS = {"RESOURCES", "KUBERNETES_NODE_SELECTOR", "KUBERNETES_TOLERATIONS", "KUBERNETES_AFFINITY"}
BOTH = {"ENV", "KUBERNETES_VOLUMES"}


def plain(task: Any) -> None:
    """No settings besides those of every task."""


def by_hand(task: Any) -> None:
    """Settings that the author of a pipeline might add."""
    task.set_accelerator_type("nvidia.com/gpu").set_accelerator_limit(2).set_memory_request("48Gi")
    task.set_env_variable("NCCL_DEBUG", "WARN")
    kubernetes.add_node_selector(task, "gpu", "h100")
    kubernetes.add_toleration(task, key="spot", operator="Exists", effect="NoSchedule")
    kubernetes.mount_pvc(task, pvc_name="corpus", mount_path="/corpus")
    kubernetes.use_secret_as_env(task, secret_name="hub", secret_key_to_env={"token": "HF_TOKEN"})


Compiled = Callable[[Callable[[Any], None]], tuple[dict[str, Any], dict[str, Any]]]


@pytest.fixture
def compile_with(recipe: Recipe, tmp_path: Path) -> Compiled:
    def compiled(add: Callable[[Any], None]) -> tuple[dict[str, Any], dict[str, Any]]:
        def both(task: Any, launches: bool) -> None:
            settle(task, launches)
            if task.name in LAUNCHING:
                add(task)

        path = tmp_path / "pipeline.yaml"
        Compiler().compile(build(recipe, both), str(path))
        ir, platform = yaml.safe_load_all(path.read_text())
        return ir, platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]

    return compiled


def handed_over(ir: dict[str, Any], pods: dict[str, Any], name: str) -> dict[str, Any]:
    """The TaskConfig that the driver of a KFP server writes (backend/src/v2/driver, 2.17)."""
    container, pod = ir["deploymentSpec"]["executors"][f"exec-{name}"]["container"], pods[f"exec-{name}"]
    resources, env = container.get("resources", {}), [dict(item) for item in container["env"]]
    for kind, reference in (("secretAsEnv", "secretKeyRef"), ("configMapAsEnv", "configMapKeyRef")):
        word = kind.removesuffix("AsEnv")
        for source in pod.get(kind, ()):
            for key in source["keyToEnv"]:
                target = {"name": source[f"{word}Name"], "key": key[f"{word}Key"]}
                env.append({"name": key["envVar"], "valueFrom": {reference: target}})
    volumes = [{"name": f["constant"], "persistentVolumeClaim": {"claimName": f["constant"]}} for f in pod["pvcMount"]]
    mounts = [{"name": item["constant"], "mountPath": item["mountPath"]} for item in pod["pvcMount"]]
    for item in pod["configMapAsVolume"]:
        volumes.append({"name": item["configMapName"], "configMap": {"name": item["configMapName"]}})
        mounts.append({"name": item["configMapName"], "mountPath": item["mountPath"]})
    gpu = resources.get("accelerator")
    return {
        "affinity": None,
        "tolerations": pod.get("tolerations"),
        "nodeSelector": pod.get("nodeSelector", {}).get("labels"),
        "env": env,
        "volumes": volumes,
        "volumeMounts": mounts,
        "resources": {
            "limits": {gpu["resourceType"]: gpu["resourceCount"]} if gpu else {},
            "requests": {"memory": resources["resourceMemoryRequest"]} if "resourceMemoryRequest" in resources else {},
        },
    }


SHOWN = {
    "teacher": {"model": "system.Model"},
    "distill": {"model": "system.Model"},
    "control": {"model": "system.Model"},
    "evaluate": {"metrics": "system.Metrics", "confusion": "system.ClassificationMetrics"},
}
"""Each task's artifacts."""


def carried(
    ir: dict[str, Any], pods: dict[str, Any], name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> TaskConfig:
    """The task config that the step gets when kfp's executor runs the source that the task carries."""
    configs: list[TaskConfig] = []

    def run_step(*_: Any) -> Result:
        configs.append(task_config.current_task())
        return Result(name, "digest", folder, {})

    monkeypatch.setenv(task_config.VARIABLE, "{}")
    monkeypatch.setattr(tasks, "run_step", run_step)
    source = ir["deploymentSpec"]["executors"][f"exec-{name}"]["container"]["command"][-1]
    namespace: dict[str, Any] = {}
    exec(source, namespace)
    (folder / MEASURES).write_text('{"confusion": null}')  # what evaluate shows of itself
    inputs = {"run": "run", "node": name, "task": handed_over(ir, pods, name)}
    shown = {
        artifact_name: {
            "name": artifact_name,
            "type": {"schemaTitle": schema},
            "uri": str(folder / artifact_name),
            "metadata": {},
        }
        for artifact_name, schema in SHOWN[name].items()
    }
    inputs = {
        "inputs": {"parameterValues": inputs},
        "outputs": {
            "parameters": {"Output": {"outputFile": str(folder / "Output")}},
            "artifacts": {artifact_name: {"artifacts": [artifact]} for artifact_name, artifact in shown.items()},
            "outputFile": str(folder / "output.json"),
        },
    }
    Executor(
        executor_input=inputs, function_to_execute=namespace["evaluate" if name == "evaluate" else "train"]
    ).execute()
    return configs[0]


def pod(task: TaskConfig, job: JobSpec) -> dict[str, Any]:
    manifest = pytorchjob.render(job, Identity("r", "teacher", "0" * 64), Resources(cpu="4"), CLUSTER, None, task)
    return dict(manifest["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"])


JOB = on_the_claim(job_spec("/f", device="cuda", supervised=True))


def test_only_tasks_that_launch_a_job_pass_their_settings_on(spec: dict[str, Any]) -> None:
    passthroughs = {
        name.removeprefix("comp-"): component.get("taskConfigPassthroughs")
        for name, component in spec["components"].items()
    }
    assert {name for name, fields in passthroughs.items() if fields} == set(LAUNCHING)
    for name in LAUNCHING:
        assert {field["field"] for field in passthroughs[name]} == FIELDS | BOTH
        assert {field["field"] for field in passthroughs[name] if field.get("applyToTask")} == BOTH
        assert spec["components"][f"comp-{name}"]["inputDefinitions"]["parameters"]["task"] == {
            "parameterType": "TASK_CONFIG",
            "isOptional": True,
        }


@pytest.mark.parametrize("name", LAUNCHING)
def test_what_every_task_has_changes_no_job(
    compile_with: Compiled, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = carried(*compile_with(plain), name, tmp_path, monkeypatch)
    assert {variable["name"] for variable in task.env} > {"UNDERSTUDY_HOME", "MLFLOW_TRACKING_PASSWORD"}
    assert pod(task, JOB) == pod(task_config.NOTHING, JOB)


def test_a_task_that_fetches_hands_no_way_out_to_its_job(
    compile_with: Compiled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = carried(*compile_with(_let_out), "teacher", tmp_path, monkeypatch)
    assert {variable["name"] for variable in task.env} > {"HTTPS_PROXY", "HF_ENDPOINT"}
    assert pod(task, JOB) == pod(task_config.NOTHING, JOB)


def test_what_is_set_on_a_task_is_in_the_jobs_pods(
    compile_with: Compiled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = pod(carried(*compile_with(by_hand), "teacher", tmp_path, monkeypatch), JOB)
    ranks = manifest["containers"][0]
    assert ranks["resources"] == {
        "requests": {"cpu": "4", "memory": "48Gi", "nvidia.com/gpu": "2"},
        "limits": {"nvidia.com/gpu": "2"},
    }
    assert manifest["nodeSelector"] == {"gpu": "h100"}
    assert {"key": "spot", "operator": "Exists", "effect": "NoSchedule"} in manifest["tolerations"]
    assert {"name": "NCCL_DEBUG", "value": "WARN"} in ranks["env"]
    token = {"secretKeyRef": {"name": "hub", "key": "token"}}
    assert {"name": "HF_TOKEN", "valueFrom": token} in ranks["env"]
    assert {"name": "corpus", "mountPath": "/corpus"} in ranks["volumeMounts"]
    claims = [
        item["persistentVolumeClaim"]["claimName"] for item in manifest["volumes"] if "persistentVolumeClaim" in item
    ]
    assert sorted(claims) == ["corpus", "understudy-store"]
    assert not [item["name"] for item in ranks["env"] if item["name"].startswith("MLFLOW")]
