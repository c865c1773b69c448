import json
import re
from pathlib import Path
from typing import Any

import pytest
from kfp import dsl

from tests import ROOT
from understudy.recipe import Recipe
from understudy.recipe.file import load
from understudy.registry.server import PAGES
from understudy.steps import step_names, steps_of
from understudy.steps.cards import card, show, show_confusion, show_start, show_verdict
from understudy.steps.environment import HOME
from understudy.steps.lookup import Lookup
from understudy.steps.start import Begun
from understudy.steps.step import Result
from understudy.store import StepState, Store

RULE = {"observed": 0.0123456, "interval": [-0.01, 0.03], "threshold": 0.02}
VERDICT = {
    "approved": False,
    "headline": "rejected by quality-against-teacher",
    "recovered": {"share": 0.5, "interval": [0.4, 0.6], "detail": "half of the gap"},
    "advice": ["train longer"],
    "judged": "the first",
    "control": {"observed": -1.0, "interval": [-2.0, -0.5], "meaning": "better", "detail": "by 1 point"},
    "cautions": ["the teacher may be overfitted"],
    "rules": [
        {"rule": "size", "passed": True, "detail": "", "observed": 0.25, "interval": None, "threshold": 0.5},
        {"rule": "quality-against-teacher", "passed": False, "detail": "a|b <script> [x](y:z)", **RULE},
    ],
}


def result(step: str, folder: Path, **facts: Any) -> Result:
    return steps_of(load(ROOT / "recipes" / "digits.yaml"))[step].result("d" * 64, folder, facts)


def test_a_verdicts_card_has_its_decision_rules_and_intervals(tmp_path: Path) -> None:
    (tmp_path / "verdict.json").write_text(json.dumps(VERDICT))
    assert card(result("gate", tmp_path)).splitlines() == [
        "# gate: rejected by quality-against-teacher",
        "",
        f"- object: {'d' * 64}",
        "",
        "| rule | | measured | interval | limit | |",
        "|---|---|---|---|---|---|",
        "| size | passed | 0.25 |  | 0.5 |  |",
        "| quality-against-teacher | **failed** | 0.01235 | -0.01 to 0.03 | 0.02 | a\\|b &lt;script> \\[x](y:z) |",
        "",
        "- half of the gap",
        "- Gain from the teacher: better by 1 point",
        "- the teacher may be overfitted",
        "- train longer",
        "- the first",
    ]


@pytest.mark.parametrize("kind", [dsl.Model, dsl.Dataset, dsl.Markdown])
def test_an_artifact_has_facts_and_a_file_at_its_address(tmp_path: Path, kind: Any) -> None:
    artifact = kind(uri=str(tmp_path / "artifact"))
    show(artifact, result("ingest", tmp_path, train=3, test=1))
    assert artifact.metadata == {"digest": "d" * 64, "train": 3, "test": 1}
    assert (tmp_path / "artifact").read_text().splitlines()[0] == "# ingest: train 3, test 1"


def test_metrics_are_numbers_alone(tmp_path: Path) -> None:
    artifact = dsl.Metrics(uri=str(tmp_path / "artifact"))
    show(artifact, result("evaluate", tmp_path, loss=0.5, name="text"))
    assert artifact.metadata == {"loss": 0.5}


def test_a_registered_model_is_the_student(tmp_path: Path) -> None:
    (tmp_path / "registration.json").write_text(json.dumps({"version": "3", "name": "n", "url": "https://m.example"}))
    artifact = dsl.Model(uri=str(tmp_path / "artifact"))
    show(artifact, result("register", tmp_path, version="3"), "s" * 64)
    assert artifact.metadata == {"digest": "s" * 64, "version": "3"}
    text = (tmp_path / "artifact").read_text()
    assert text.startswith("# register: version 3 of n, https://m.example\n")
    assert f"- object: {'s' * 64}\n" in text


def test_a_verdict_is_shown_with_its_report_and_says_its_decision(tmp_path: Path) -> None:
    (tmp_path / "verdict.json").write_text(json.dumps(VERDICT))
    (tmp_path / "report.html").write_text("the report")
    verdict, report = dsl.Markdown(uri=str(tmp_path / "verdict")), dsl.HTML(uri=str(tmp_path / "report"))
    assert show_verdict(verdict, report, result("gate", tmp_path)) == "rejected"
    assert (tmp_path / "verdict").read_text().startswith("# gate: rejected by quality-against-teacher")
    assert (tmp_path / "report").read_text() == "the report"


@pytest.mark.parametrize("counted", [True, False])
def test_a_classifiers_confusion_is_what_kfp_draws(tmp_path: Path, counted: bool) -> None:
    confusion = {"labels": ["0", "1"], "counts": [[3, 1], [0, 2]]}
    (tmp_path / "measures.json").write_text(json.dumps({"confusion": confusion if counted else None}))
    artifact = dsl.ClassificationMetrics(uri=str(tmp_path / "artifact"))
    show_confusion(artifact, result("evaluate", tmp_path, loss=0.5))
    assert (tmp_path / "artifact").read_text().startswith("# evaluate: loss 0.5")
    if counted:
        drawn = artifact.metadata["confusionMatrix"]
        assert [specification["displayName"] for specification in drawn["annotationSpecs"]] == ["0", "1"]
        assert [row["row"] for row in drawn["rows"]] == [[3, 1], [0, 2]]
    else:
        assert artifact.metadata == {}


def test_a_link_leads_to_where_people_see_the_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PAGES, "https://mlflow.example.com/")
    url = "http://mlflow:5000/#/experiments/1/runs/2"
    (tmp_path / "registration.json").write_text(json.dumps({"version": "3", "name": "n", "url": url}))
    artifact = dsl.Model(uri=str(tmp_path / "artifact"))
    show(artifact, result("register", tmp_path, url=url))
    page = "https://mlflow.example.com/#/experiments/1/runs/2"
    assert artifact.metadata["url"] == page
    text = (tmp_path / "artifact").read_text()
    assert text.startswith(f"# register: version 3 of n, {page}\n")
    assert f"- url: [{page}]({page})\n" in text
    assert "mlflow:5000" not in text


@pytest.mark.parametrize("facts", [{"stays": ""}, {"version": None}, {"stays": "", "version": None}])
def test_no_card_has_an_empty_row(tmp_path: Path, facts: dict[str, Any]) -> None:
    lines = card(result("ingest", tmp_path, train=3, **facts)).splitlines()
    assert [line for line in lines if line.startswith("- ")] == [f"- object: {'d' * 64}", "- train: 3"]


CONTENT = {
    "verdict.json": {**VERDICT, "approved": True, "headline": "approved: within 2 % of its teacher", "rules": []},
    "registration.json": {"version": "3", "name": "n", "url": "https://m.example/#/r"},
    "report.html": "the report",
}


@pytest.mark.parametrize("n_cached", [0, 3, 8])
@pytest.mark.parametrize("problem", ["", "MLflow does not answer"])
def test_the_first_task_shows_which_results_are_there(
    tmp_path: Path, store: Store, digits: Recipe, monkeypatch: pytest.MonkeyPatch, n_cached: int, problem: str
) -> None:
    monkeypatch.setenv(HOME, str(store.folder.parent))
    run = store.create_run("digits", digits.model_dump(mode="json", by_alias=True), "", "run-1")
    states = []
    for name in step_names(digits)[:n_cached]:
        (staged := tmp_path / name).mkdir()
        for file, content in CONTENT.items():
            (staged / file).write_text(content if isinstance(content, str) else json.dumps(content))
        states.append(StepState(name, "reused", digest=store.objects.publish(staged, "any", {})))
    complete = n_cached == len(step_names(digits))
    overview, report = dsl.Markdown(uri=str(tmp_path / "overview")), dsl.HTML(uri=str(tmp_path / "report"))
    begun = Begun(run.id, "approved" if complete else "nothing", Lookup(tuple(states), complete, problem))
    show_start(overview, report, begun)
    text = (tmp_path / "overview").read_text()
    rows = [line[2:].split(": ") for line in text.split("# gate")[0].splitlines() if line.startswith("- ")]
    assert [row[0] for row in rows] == step_names(digits)
    assert [re.match("reused|to run", row[1])[0] for row in rows] == [  # type: ignore[index]
        "reused" if number < n_cached else "to run" for number in range(len(rows))
    ]
    assert (problem in text) if problem and not complete else ("MLflow" not in text)
    assert ("# gate: approved" in text) == ("version 3 of n" in text) == complete
    assert ((tmp_path / "report").read_text() == "the report") == complete
    assert overview.metadata["results"] == f"{n_cached} of {len(rows)}"


@pytest.mark.parametrize("name", ["student/calibration_error and teacher/calibration_error", "a*b*c", "_x_"])
def test_nothing_in_a_card_is_taken_for_emphasis(tmp_path: Path, name: str) -> None:
    text = card(result("evaluate", tmp_path, **{name: name}))
    assert not re.findall(r"(?<!\\)[_*]", text)
    assert text.replace("\\", "").count(name) == 4
