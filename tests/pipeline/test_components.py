import ast
import importlib
import inspect
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from kfp import dsl

from understudy import steps
from understudy.steps.step import Result

ROOT = Path(__file__).parents[2]
FOLDERS = sorted(path.name for path in (ROOT / "components").iterdir() if (path / "component.py").exists())
MOST_LINES = 10


def component(name: str) -> Any:
    return getattr(importlib.import_module(f"components.{name}.component"), name)


def metadata(name: str) -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / "components" / name / "metadata.yaml").read_text()))


def embedded(spec: dict[str, Any], name: str) -> str:
    """The source that the task carries into its pod."""
    return str(spec["deploymentSpec"]["executors"][f"exec-{name}"]["container"]["command"][-1])


def artifacts(name: str) -> list[str]:
    return [
        parameter
        for parameter in inspect.signature(component(name).python_func).parameters
        if not given(name, parameter)
    ]


def given(name: str, parameter: str) -> bool:
    return parameter in component(name).component_spec.inputs


def test_there_is_a_component_for_each_step() -> None:
    assert sorted(["start", *steps.STEPS]) == FOLDERS


@pytest.mark.parametrize("name", FOLDERS)
def test_a_components_metadata_says_what_it_is(name: str) -> None:
    found, about = component(name), metadata(name)
    assert about["name"] == found.name == name
    assert about["inputs"] == list(found.component_spec.inputs)
    assert f"understudy/{about['image']}" == found.component_spec.implementation.container.image
    assert about["description"].endswith(".")
    assert about["output"]


@pytest.mark.parametrize("name", [name for name in FOLDERS if name != "start"])
def test_a_component_takes_what_its_step_declares(name: str) -> None:
    roles = set(component(name).component_spec.inputs) - {"run", "task"}
    assert roles == set(steps.STEPS[name].inputs)


@pytest.mark.parametrize("name", FOLDERS)
def test_a_components_body_is_thin(name: str) -> None:
    source = (ROOT / "components" / name / "component.py").read_text()
    function = next(node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef))
    body = function.body[1:]  # after the docstring
    assert (body[-1].end_lineno or 0) - body[0].lineno + 1 <= MOST_LINES


@pytest.mark.parametrize("name", [name for name in FOLDERS if name != "start"])
def test_the_source_that_a_task_carries_runs_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, spec: dict[str, Any], name: str
) -> None:
    """With nothing of its module around it, the step is executed on the given digests, and its facts are shown."""
    (tmp_path / "report.html").write_text("the report")
    (tmp_path / "verdict.json").write_text(json.dumps({"approved": True, "rules": [], "control": None, "cautions": []}))
    (tmp_path / "registration.json").write_text(json.dumps({"version": None, "name": "n", "url": "u"}))
    calls = []

    def execute(step: str, run: str, *task: dict[str, Any], **inputs: str) -> Result:
        calls.append((step, run, *task, inputs))
        return Result("digest", tmp_path, {"accuracy": 0.5, "version": None, "name": "n", "url": "u"})

    monkeypatch.setattr(steps, "component", execute)
    namespace: dict[str, Any] = {}
    exec(embedded(spec, name), namespace)
    outputs = {
        role: SimpleNamespace(path=tmp_path / f"{role}.out", metadata={}, schema_title="system.Model")
        for role in artifacts(name)
    }
    inputs = {role: f"digest of {role}" for role in metadata(name)["inputs"] if role != "task"}
    task = {"task": dsl.TaskConfig(node_selector={"gpu": "h100"})} if "task" in metadata(name)["inputs"] else {}
    assert namespace[name](**inputs, **task, **outputs) == "digest"
    run = inputs.pop("run")
    assert calls == [(name, run, *(vars(found) for found in task.values()), inputs)]
    assert bool(task) == (name in ("teacher", "distill", "control", "evaluate"))
    shown = next(artifact for role, artifact in outputs.items() if role != "report")
    assert shown.metadata["accuracy"] == 0.5
    assert shown.metadata.get("digest") == ("digest of student" if name == "register" else "digest")
    assert json.dumps(shown.metadata)
    assert shown.path.read_text().startswith(f"# {name}: ")
    if "report" in outputs:
        assert outputs["report"].path.read_text() == "the report"


def test_the_first_task_carries_its_source_too(monkeypatch: pytest.MonkeyPatch, spec: dict[str, Any]) -> None:
    calls = []
    monkeypatch.setattr(steps, "start_component", lambda *given: calls.append(given) or "run-1")
    namespace: dict[str, Any] = {}
    exec(embedded(spec, "start"), namespace)
    assert namespace["start"](recipe='{"a": 1}', overrides="", seed=3, job_id="j", steps="ingest,gate") == "run-1"
    assert calls == [({"a": 1}, "", 3, "j", ["ingest", "gate"])]


def test_tasks_install_nothing(spec: dict[str, Any]) -> None:
    for executor in spec["deploymentSpec"]["executors"].values():
        assert "pip" not in " ".join(executor["container"]["command"][:-1])
