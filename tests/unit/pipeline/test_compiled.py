import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from kfp import components

from tests import ROOT
from understudy.errors import InputError
from understudy.pipelines.compiled import write
from understudy.recipe import Recipe
from understudy.recipe.file import from_values, load
from understudy.steps import step_names

RECIPE = ROOT / "recipes" / "digits.yaml"
IMAGES = "registry.example:5000/ml/understudy:1.2"
DNS_1123 = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def changed(recipe: Recipe, *overrides: str) -> Recipe:
    return from_values(recipe.model_dump(mode="json", by_alias=True), overrides, "test")


def objects(folder: Path, name: str = "digits") -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((folder / f"{name}.kubernetes.yaml").read_text()))


def ir(folder: Path) -> dict[str, Any]:
    return next(iter(yaml.safe_load_all((folder / "digits.yaml").read_text())))  # platforms' settings follow it


def version(recipe: Recipe, folder: Path, images: str = IMAGES) -> str:
    write(recipe, images, folder)
    return str(objects(folder, recipe.name)[1]["metadata"]["name"])


def test_the_ir_loads_back_into_kfp(compiled: Path) -> None:
    assert components.load_component_from_file(str(compiled / "digits.yaml")).name == "digits"


def test_the_pipeline_comes_before_its_version_which_holds_the_same_spec(compiled: Path, spec: dict[str, Any]) -> None:
    first, second = objects(compiled)
    assert (first["kind"], second["kind"]) == ("Pipeline", "PipelineVersion")
    assert first["apiVersion"] == second["apiVersion"] == "pipelines.kubeflow.org/v2beta1"
    assert second["spec"]["pipelineName"] == first["metadata"]["name"] == "digits"
    assert second["spec"]["pipelineSpec"] == spec


def test_no_object_names_a_namespace(compiled: Path) -> None:
    assert all("namespace" not in document["metadata"] for document in objects(compiled))


@pytest.mark.parametrize("name", ["digits", "d1", "a-name-of-forty-characters-which-is-most"])
def test_names_are_ones_that_kubernetes_takes(recipe: Recipe, tmp_path: Path, name: str) -> None:
    write(changed(recipe, f"name={name}"), IMAGES, tmp_path)
    first, second = (document["metadata"]["name"] for document in objects(tmp_path, name))
    assert first == name
    assert second.startswith(f"{name}-")
    assert all(DNS_1123.fullmatch(version) for version in (first, second))


def test_a_versions_name_changes_with_its_spec_and_only_with_it(recipe: Recipe, tmp_path: Path) -> None:
    name = version(recipe, tmp_path)
    assert version(changed(recipe), tmp_path / "again") == name
    other_names = [
        version(changed(recipe, "student.distill.logits.temperature=5"), tmp_path),
        version(changed(recipe, "student.control=false"), tmp_path),
        version(changed(recipe, "seed=1"), tmp_path),
        version(recipe, tmp_path, "registry.example:5000/ml/understudy:1.3"),
    ]
    assert len({name, *other_names}) == 5


def test_compiling_in_another_process_gives_the_same_bytes(compiled: Path, tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from understudy.pipelines.compiled import write; "
        "from understudy.recipe.file import load; write(load(Path(sys.argv[1])), sys.argv[2], Path(sys.argv[3]))"
    )
    command = [sys.executable, "-c", program, str(RECIPE), IMAGES, str(tmp_path)]
    secrets = {"MLFLOW_TRACKING_URI": "https://ann:hunter2@mlflow.example", "HF_TOKEN": "hf_hunter2"}
    subprocess.run(command, check=True, cwd=RECIPE.parents[1], env={**os.environ, **secrets, "PYTHONHASHSEED": "7"})
    written = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert written == {path.name: path.read_bytes() for path in compiled.iterdir()}
    assert not any(b"hunter2" in content for content in written.values())


def test_each_component_runs_on_an_image_of_the_prefix_and_tag(spec: dict[str, Any]) -> None:
    executors = spec["deploymentSpec"]["executors"]
    images = {name.removeprefix("exec-"): executor["container"]["image"] for name, executor in executors.items()}
    launchers = {name for name, image in images.items() if image == "registry.example:5000/ml/understudy-launcher:1.2"}
    assert images.keys() == launchers == {"start", *step_names(load(RECIPE)), "rejected"}, (
        "who holds credentials loads no model"
    )


def test_a_step_that_fetches_a_pretrained_model_runs_where_torch_is(recipe: Recipe, tmp_path: Path) -> None:
    fetched = changed(recipe, "teacher.model={pretrained: org/model, revision: main}")
    write(fetched, IMAGES, tmp_path)
    executors = ir(tmp_path)["deploymentSpec"]["executors"]
    assert "-trainer:" in executors["exec-teacher"]["container"]["image"]
    assert "-trainer:" in executors["exec-start"]["container"]["image"], "it looks that step up"
    assert "-trainer:" in executors["exec-distill"]["container"]["image"], "it compares the teacher's tokenizer"
    assert "-launcher:" in executors["exec-gate"]["container"]["image"]


def test_conversations_need_the_libraries_that_serve_them_in_every_task(tmp_path: Path) -> None:
    write(load(ROOT / "recipes" / "chat.yaml"), IMAGES, tmp_path)
    compiled = next(iter(yaml.safe_load_all((tmp_path / "chat.yaml").read_text())))
    executors = compiled["deploymentSpec"]["executors"].values()
    assert all("-trainer:" in executor["container"]["image"] for executor in executors)


def test_steps_that_read_a_model_s_own_code_run_on_the_image_that_has_it(recipe: Recipe, tmp_path: Path) -> None:
    write(changed(recipe, "student.model={factory: nets:small}"), IMAGES, tmp_path)
    executors = ir(tmp_path)["deploymentSpec"]["executors"]
    trainers = {name for name, executor in executors.items() if "-trainer:" in executor["container"]["image"]}
    ends = {"exec-register", "exec-rejected"}
    assert trainers == {"exec-start", "exec-distill", "exec-control", "exec-evaluate", *ends}


def test_tasks_of_lm_eval_are_a_task_before_the_gate_on_the_image_that_may_have_it(tmp_path: Path) -> None:
    recipe = changed(load(ROOT / "recipes" / "pydoc.yaml"), "evaluate.lm_eval={tasks: [x], include: /tasks}")
    write(recipe, IMAGES, tmp_path)
    spec = next(yaml.safe_load_all((tmp_path / "pydoc.yaml").read_text()))
    executors = spec["deploymentSpec"]["executors"].items()
    on_trainer = {name.removeprefix("exec-") for name, one in executors if "-trainer:" in one["container"]["image"]}
    assert on_trainer == {"start", "benchmark"}, "their keys have its version"
    tasks = spec["root"]["dag"]["tasks"]
    assert set(tasks["benchmark"]["dependentTasks"]) == set(tasks["evaluate"]["dependentTasks"])
    assert {"benchmark", "evaluate"} <= set(tasks["gate"]["dependentTasks"])


def test_every_task_has_the_store_and_knows_how_to_launch(compiled: Path, spec: dict[str, Any]) -> None:
    platform = list(yaml.safe_load_all((compiled / "digits.yaml").read_text()))[1]["platforms"]["kubernetes"]
    pods = platform["deploymentSpec"]["executors"]
    assert pods.keys() == spec["deploymentSpec"]["executors"].keys()
    for name, executor in spec["deploymentSpec"]["executors"].items():
        environment = {variable["name"]: variable["value"] for variable in executor["container"]["env"]}
        assert environment["UNDERSTUDY_LAUNCHER"] == "cluster", "its settings say which"
        (mounted,) = pods[name]["pvcMount"]
        assert environment["UNDERSTUDY_HOME"].startswith(mounted["mountPath"])


def let_out(folder: Path, name: str = "digits") -> set[str]:
    """The tasks whose pods have the label that opens a way out; each has the proxy's variables, and no other has."""
    documents = list(yaml.safe_load_all((folder / f"{name}.yaml").read_text()))
    pods = documents[1]["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    tasks = set()
    for task, pod in pods.items():
        out = pod["podMetadata"]["labels"].get("understudy.fetches") == "true"
        maps = {source["configMapName"] for source in pod["configMapAsEnv"]}
        folders = {source["configMapName"] for source in pod["configMapAsVolume"]}
        assert ("understudy-fetching" in maps) == ("understudy-certificates" in folders) == out
        tasks |= {task.removeprefix("exec-")} if out else set()
    return tasks


@pytest.mark.parametrize(
    ("change", "tasks"),
    [
        ("seed=1", set()),
        ("teacher.model={pretrained: org/model, revision: main}", {"start", "teacher"}),
        ("student.model={pretrained: org/model, revision: main}", {"start", "distill", "control"}),
        ("teacher.model={pretrained: /models/vit}", set()),
        ("data.source={type: datasets, path: org/images}", {"start", "ingest"}),
        ("data.source={type: datasets, path: /data/images}", set()),
    ],
)
def test_the_tasks_that_fetch_have_a_way_out_and_a_proxy_and_no_other_has(
    recipe: Recipe, tmp_path: Path, change: str, tasks: set[str]
) -> None:
    write(changed(recipe, change), IMAGES, tmp_path)
    assert let_out(tmp_path) == tasks


def test_a_tokenizer_of_a_hub_is_fetched_by_prepare(tmp_path: Path) -> None:
    from understudy.recipe.file import load

    write(
        changed(load(RECIPE.with_name("pydoc.yaml")), "data.text.tokenizer={pretrained: org/words}"), IMAGES, tmp_path
    )
    assert let_out(tmp_path, "pydoc") == {"start", "prepare"}


def test_compiling_leaves_the_components_own_images_alone(recipe: Recipe, tmp_path: Path) -> None:
    write(recipe, IMAGES, tmp_path)
    write(recipe, "other:2", tmp_path)
    executors = ir(tmp_path)["deploymentSpec"]["executors"]
    assert {executor["container"]["image"] for executor in executors.values()} == {"other-launcher:2"}


@pytest.mark.parametrize(
    "images",
    [
        "registry.example/understudy",
        "registry.example:5000/understudy",
        "registry.example/understudy:",
        "registry.example/understudy:latest",
        "registry.example/understudy@sha256:" + 64 * "a",
        "Registry.example/understudy:1",
        "registry.example/under study:1",
        "registry.example//understudy:1",
        ":1",
        "",
    ],
)
def test_images_without_a_prefix_and_a_lasting_tag_are_refused(recipe: Recipe, tmp_path: Path, images: str) -> None:
    with pytest.raises(InputError, match=r"--images .*: give PREFIX:TAG"):
        write(recipe, images, tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_first_task_gets_the_whole_recipe_and_the_parameters(recipe: Recipe, spec: dict[str, Any]) -> None:
    parameters = spec["root"]["dag"]["tasks"]["start"]["inputs"]["parameters"]
    assert Recipe.model_validate(json.loads(parameters["recipe"]["runtimeValue"]["constant"])) == recipe
    assert parameters["overrides"] == {"componentInputParameter": "overrides"}
    assert parameters["seed"] == {"componentInputParameter": "seed"}
    assert parameters["job_id"] == {"runtimeValue": {"constant": "{{$.pipeline_job_uuid}}"}}


def test_overrides_and_seed_stay_open_and_have_defaults(recipe: Recipe, tmp_path: Path) -> None:
    write(changed(recipe, "seed=1234567890"), IMAGES, tmp_path)
    inputs = ir(tmp_path)["root"]["inputDefinitions"]["parameters"]
    assert inputs == {
        "fail_when_rejected": {"parameterType": "BOOLEAN", "defaultValue": False, "isOptional": True},
        "overrides": {"parameterType": "STRING", "defaultValue": "", "isOptional": True},
        "seed": {"parameterType": "NUMBER_INTEGER", "defaultValue": 1234567890, "isOptional": True},
    }


def test_kfps_cache_is_off_for_every_task(spec: dict[str, Any]) -> None:
    tasks = spec["root"]["dag"]["tasks"]
    assert tasks.keys() == {"start", *step_names(load(RECIPE)), "rejected"}
    assert not any(task["cachingOptions"].get("enableCache") for task in tasks.values())


def test_every_task_s_pod_is_one_that_a_restricted_namespace_takes_and_of_a_size(
    compiled: Path, spec: dict[str, Any]
) -> None:
    platform = list(yaml.safe_load_all((compiled / "digits.yaml").read_text()))[1]["platforms"]["kubernetes"]
    for name, pod in platform["deploymentSpec"]["executors"].items():
        assert pod["securityContext"]["runAsNonRoot"] is True
        resources = spec["deploymentSpec"]["executors"][name]["container"].get("resources")
        launching = name.removeprefix("exec-") in ("teacher", "distill", "control", "evaluate")
        assert (resources is None) == launching, "of a task that launches, its job would get them"
        assert launching or {"resourceCpuRequest", "resourceMemoryRequest", "resourceMemoryLimit"} <= resources.keys()
