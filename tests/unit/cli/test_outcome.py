from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from tests import ROOT
from understudy.cli import outcome
from understudy.cli.outcome import _address, _pages, _problems, _registered, _shortest, show_verdict
from understudy.recipe.file import load
from understudy.store import Run, StepState, Store


def test_a_path_is_as_one_would_type_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert _shortest(Path("store/report.html")) == "store/report.html"
    assert _shortest(tmp_path / "here" / "report.html") == "report.html"
    assert _shortest(tmp_path / "report.html") == str(tmp_path / "report.html")
    monkeypatch.chdir("/")  # as in a pod; who reads it is elsewhere
    assert _shortest(Path("/var/lib/report.html")) == "/var/lib/report.html"


def test_the_way_to_a_runs_page_leads_to_its_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("UNDERSTUDY_HOME", raising=False)
    assert _address("runs:/1", tmp_path / ".understudy") == "understudy ui"
    assert _address("runs:/1", tmp_path / "my home") == "understudy --home 'my home' ui"
    monkeypatch.setenv("UNDERSTUDY_HOME", "my home")
    assert _address("runs:/1", tmp_path / "my home") == "understudy ui"
    page = "http://mlflow.example/#/experiments/1/runs/1?workflowType=machine_learning"
    assert _address(page, tmp_path / "elsewhere") == page


def test_what_has_to_be_known_first_comes_before_the_rules(capsys: pytest.CaptureFixture[str]) -> None:
    rule = {"rule": "size", "passed": True, "detail": "Size: fine."}
    verdict = {"approved": True, "cautions": ["The teacher is overfitted."], "rules": [rule], "control": None}
    show_verdict(Console(width=200), verdict)
    assert capsys.readouterr().out.splitlines() == [
        "approved",
        "  note  The teacher is overfitted.",
        "  pass  size: Size: fine.",
    ]


def test_a_verdict_s_last_lines_say_what_was_recovered_and_what_to_change(capsys: pytest.CaptureFixture[str]) -> None:
    rule = {"rule": "quality-against-control", "passed": False, "detail": "Worse."}
    verdict = {
        "approved": False,
        "headline": "rejected by quality-against-control",
        "cautions": [],
        "rules": [rule],
        "control": {"detail": "student minus control: worse"},
        "recovered": {"detail": "the student recovered −10 % of the gap [x]"},
        "judged": "It is number 3.",
        "advice": ["Train longer.", "Or register the control: --set register.control=true."],
    }
    show_verdict(Console(width=200), verdict)
    assert capsys.readouterr().out.splitlines() == [
        "rejected by quality-against-control",
        "  FAIL  quality-against-control: Worse.",
        "  what the teacher was worth: student minus control: worse",
        "  the student recovered −10 % of the gap [x]",
        "  It is number 3.",
        "  what to change: Train longer.",
        "  what to change: Or register the control: --set register.control=true.",
    ]


def test_an_alias_that_did_not_move_is_told_with_the_reason(tmp_path: Path) -> None:
    recipe = load(ROOT / "recipes" / "digits.yaml").model_dump(mode="json", by_alias=True)
    run, registered = Store(tmp_path).create_run("digits", recipe, ""), {"name": "digits", "version": "1"}
    assert _registered(run, registered) == "registered: digits version 1, alias challenger"
    with_reason = {**registered, "stays": "version 2, which has it, is newer"}
    assert _registered(run, with_reason) == (
        "registered before: digits version 1; the alias challenger stays where it is: version 2, which has it, is newer"
    )
    run.record(StepState("register", "reused"))
    assert _registered(run, with_reason) == "registered before: digits version 1"
    assert _registered(run, {"name": "digits", "version": None}) == "not registered; the evidence is in MLflow"


def test_what_a_step_says_of_the_recipe_gets_the_recipes_line(tmp_path: Path) -> None:
    (tmp_path / "steps").mkdir()
    run = Run(tmp_path)
    for step in ("prepare", "control"):  # what two steps say alike is said once
        run.record(StepState(step, "failed", detail="gate.margin: too small", exit_code=2))
    assert _problems(run, 2, lambda text: f"r.yaml:9: {text}") == ["error: r.yaml:9: gate.margin: too small"]


@pytest.mark.parametrize("remote", [False, True])
@pytest.mark.parametrize("is_registered", [False, True])
def test_pages_of_results_are_named_by_their_kinds_once_they_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remote: bool, is_registered: bool
) -> None:
    monkeypatch.setattr(outcome, "platform", lambda: SimpleNamespace(remote=remote))
    recipe = load(ROOT / "recipes" / "digits.yaml").model_dump(mode="json", by_alias=True)
    store = Store(tmp_path)
    run = store.create_run("digits", recipe, "")
    run.record(StepState("ingest", "done", digest="ab" * 32))
    run.record(StepState("gate", "running"))
    assert list(_pages(run, store, is_registered=is_registered)) == []
    run.record(StepState("gate", "done", digest="cd" * 32))
    ((title, where),) = _pages(run, store, is_registered=is_registered)
    assert title == "report"
    if remote and is_registered:
        assert where == "report.html of the run, in MLflow"
    else:
        assert where.endswith(f"{'cd' * 32}/report.html")
