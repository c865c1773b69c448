import ast
import importlib
import inspect
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import yaml
from kfp import dsl

from tests import ROOT
from tests.unit.pipeline.conftest import IMAGES
from understudy import steps
from understudy.components.evaluate import classifier
from understudy.graph import Kind, nodes
from understudy.pipelines.compiled import write
from understudy.recipe.file import load
from understudy.steps.lookup import Lookup
from understudy.steps.start import Begun
from understudy.steps.step import Result

FOLDERS = sorted(path.name for path in (ROOT / "components").iterdir() if (path / "component.py").exists())
MOST_LINES = 10
VERDICT: dict[str, Any] = {
    "approved": True,
    "headline": "approved: within 2 points",
    "rules": [],
    "cautions": [],
    "advice": [],
    "judged": "",
    "control": None,
    "recovered": None,
}


CACHED = ["teacher.logits={type: top_k}"]
KINDS = {node.name: node.kind for node in nodes(load(ROOT / "recipes" / "digits.yaml", overrides=CACHED))}
"""The kind of each node of digits with cached logits."""


def component(name: str) -> Any:
    return getattr(importlib.import_module(f"understudy.components.{name}.component"), name)


def of_digits(name: str) -> Any:
    """The component that the pipeline of digits has: a classifier's measures are another one's."""
    return classifier.evaluate if name == "evaluate" else component(name)


def metadata(name: str) -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / "components" / name / "metadata.yaml").read_text()))


@pytest.fixture(scope="module")
def with_logits(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The compiled pipeline of digits with cached logits."""
    folder = tmp_path_factory.mktemp("cached")
    write(load(ROOT / "recipes" / "digits.yaml", overrides=CACHED), IMAGES, folder)
    return dict(next(iter(yaml.safe_load_all((folder / "digits.yaml").read_text()))))


def embedded(spec: dict[str, Any], name: str) -> str:
    """The source that the task carries into its pod."""
    return str(spec["deploymentSpec"]["executors"][f"exec-{name}"]["container"]["command"][-1])


def artifacts(name: str) -> list[str]:
    return [
        parameter
        for parameter in inspect.signature(of_digits(name).python_func).parameters
        if not is_input(name, parameter)
    ]


def is_input(name: str, parameter: str) -> bool:
    return parameter in component(name).component_spec.inputs


def test_there_is_a_component_for_each_kind_of_node() -> None:
    assert sorted({"start", "rejected", *(kind.name for kind in KINDS.values())}) == FOLDERS
    assert {kind.component for kind in KINDS.values()} == {
        f"understudy.components.{kind.name}.component" for kind in KINDS.values()
    }


@pytest.mark.parametrize("name", FOLDERS)
def test_a_components_metadata_says_what_it_is(name: str) -> None:
    loaded, description = component(name), metadata(name)
    assert description["name"] == loaded.name == name
    assert description["inputs"] == list(loaded.component_spec.inputs)
    assert f"understudy/{description['image']}" == loaded.component_spec.implementation.container.image
    assert description["description"].endswith(".")
    assert description["output"]


@pytest.mark.parametrize("kind", dict.fromkeys(KINDS.values()), ids=lambda kind: kind.name)
def test_a_component_takes_the_run_its_node_and_the_settings_of_its_task(kind: Kind) -> None:
    expected = {"run", "node", "task"} if kind.launches else {"run", "node"}
    assert set(component(kind.name).component_spec.inputs) == expected


def test_a_classifier_is_measured_like_any_model_and_shows_its_confusion_too() -> None:
    plain, classifier = component("evaluate"), of_digits("evaluate")
    assert classifier.component_spec.inputs == plain.component_spec.inputs
    added = {"confusion": dsl.ClassificationMetrics.schema_title}
    assert {
        name: output.type.partition("@")[0]
        for name, output in classifier.component_spec.outputs.items()
        if name not in plain.component_spec.outputs
    } == added


@pytest.mark.parametrize("path", sorted((ROOT / "components").glob("*/[a-z]*.py")), ids=lambda path: path.parent.name)
def test_a_components_body_is_thin(path: Path) -> None:
    source = path.read_text()
    function = next(node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef))
    body = function.body[1:]  # after the docstring
    assert (body[-1].end_lineno or 0) - body[0].lineno + 1 <= MOST_LINES


def result(step: str, folder: Path) -> Result:
    facts = {"accuracy": 0.5, "version": None, "name": "n", "url": "u", "candidate": "control"}
    inputs = {"student": "digest of student", "control": "digest of control"}
    return steps.steps_of(load(ROOT / "recipes" / "digits.yaml", overrides=CACHED))[step].result(
        "digest", folder, facts, inputs
    )


@pytest.fixture
def content(tmp_path: Path) -> Path:
    """The facts that any step's object may have."""
    (tmp_path / "report.html").write_text("the report")
    (tmp_path / "verdict.json").write_text(json.dumps(VERDICT))
    (tmp_path / "measures.json").write_text(json.dumps({"confusion": None}))
    (tmp_path / "registration.json").write_text(json.dumps({"version": None, "name": "n", "url": "u"}))
    return tmp_path


def carried(spec: dict[str, Any], name: str, folder: Path, **arguments: Any) -> tuple[Any, dict[str, Any]]:
    """The return value and artifacts of the source that a task carries, run without its module."""
    kind = KINDS[name].name if name in KINDS else name
    namespace: dict[str, Any] = {"NamedTuple": NamedTuple}  # kfp's executor imports all of typing
    exec(embedded(spec, name), namespace)
    outputs = {
        role: SimpleNamespace(path=folder / f"{role}.out", metadata={}, schema_title="system.Model")
        for role in artifacts(kind)
    }
    return namespace[kind](**arguments, **outputs), outputs


@pytest.mark.parametrize("name", KINDS)
def test_the_source_that_a_task_carries_runs_alone(
    monkeypatch: pytest.MonkeyPatch, content: Path, with_logits: dict[str, Any], name: str
) -> None:
    """The step is executed, its facts are shown, and the run is handed on."""
    calls = []

    def execute(step: str, run: str, *task: dict[str, Any]) -> Result:
        calls.append((step, run, *task))
        return result(step, content)

    monkeypatch.setattr(steps, "component", execute)
    task = {"task": dsl.TaskConfig(node_selector={"gpu": "h100"})} if KINDS[name].launches else {}
    returned, outputs = carried(with_logits, name, content, run="run-1", node=name, **task)
    assert returned == (("approved", "run-1") if name == "gate" else "run-1")
    assert calls == [(name, "run-1", *(vars(setting) for setting in task.values()))]
    shown = next(artifact for role, artifact in outputs.items() if role != "report")
    assert shown.metadata["accuracy"] == 0.5
    assert shown.metadata.get("digest") == ("digest of control" if name == "register" else "digest")
    assert json.dumps(shown.metadata)
    assert shown.path.read_text().startswith(f"# {name}: ")
    if "report" in outputs:
        assert outputs["report"].path.read_text() == "the report"


def test_a_rejection_shows_the_verdict_that_is_there(
    monkeypatch: pytest.MonkeyPatch, content: Path, spec: dict[str, Any]
) -> None:
    rejections = []
    monkeypatch.setattr(steps, "verdict_of", lambda run: result("gate", content))
    monkeypatch.setattr(steps, "reject", lambda *arguments: rejections.append(arguments))
    returned, outputs = carried(spec, "rejected", content, run="run-1", fails=True)
    assert returned == "run-1"
    assert rejections == [("run-1", True)]
    assert outputs["verdict"].path.read_text().startswith("# gate: approved")
    assert outputs["report"].path.read_text() == "the report"


def test_the_first_task_carries_its_source_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, spec: dict[str, Any]
) -> None:
    calls, shown = [], []
    begun = Begun("run-1", "nothing", Lookup((), complete=False))
    monkeypatch.setattr(steps, "start_component", lambda *arguments: calls.append(arguments) or begun)
    monkeypatch.setattr(steps, "show_start", lambda *arguments: shown.append(arguments))
    arguments = {"recipe": '{"a": 1}', "overrides": "", "seed": 3, "job_id": "j", "steps": "ingest,gate", "fails": True}
    returned, outputs = carried(spec, "start", tmp_path, **arguments)
    assert returned == ("nothing", "run-1")
    assert calls == [({"a": 1}, "", 3, "j", ["ingest", "gate"], True)]
    assert shown == [(outputs["overview"], outputs["report"], begun)]


def test_tasks_install_nothing(spec: dict[str, Any]) -> None:
    for executor in spec["deploymentSpec"]["executors"].values():
        assert "pip" not in " ".join(executor["container"]["command"][:-1])
