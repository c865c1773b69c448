"""A step as a pipeline's task: its inputs from outside the store, and the hook after it."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.unit.steps.champions import model, name_champion
from understudy.errors import InputError, UnderstudyError
from understudy.recipe import Recipe
from understudy.recipe.file import from_values
from understudy.registry import champion as champions
from understudy.registry import verdict
from understudy.registry.champion import Champion
from understudy.steps import component, last_words, reject, start_component, step_names, steps_of, tasks
from understudy.steps.environment import HOME, RUN
from understudy.steps.step import Result, Step, World
from understudy.steps.tasks import run_step
from understudy.store import Run, StepState, Store
from understudy.store.files import write_json

RESULT = Result("any", "d" * 64, Path("nowhere"), {})
URI = "MLFLOW_TRACKING_URI"


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, store: Store) -> list[tuple[Any, ...]]:
    """Step, inputs and world of every step that would be executed."""
    executed: list[tuple[Any, ...]] = []

    def execute(step: Step, at: Store, run: Run, inputs: Mapping[str, str], world: Mapping[str, str]) -> Result:
        executed.append((step.name, dict(inputs), dict(world)))
        return RESULT

    monkeypatch.setenv(HOME, str(store.folder.parent))
    monkeypatch.setattr(tasks, "execute", execute)
    monkeypatch.setattr(tasks, "connect_to_run", lambda run: None)
    return executed


def record_results(run: Run, **digests: str) -> None:
    """Let the run's steps have made what later ones take."""
    for step, digest in digests.items():
        run.record(StepState(step, "done", digest=digest))


ORIGIN = {"ingest": "r", "prepare": "e", "teacher": "t", "distill": "s"}
GIVEN = {"records": "r", "examples": "e", "teacher": "t", "student": "s"}


@pytest.fixture
def run(store: Store, digits: Recipe) -> Run:
    recipe = from_values(digits.model_dump(mode="json", by_alias=True), ["student.control=false"], "test")
    return store.create_run("digits", recipe.model_dump(mode="json", by_alias=True), "")


def test_a_step_takes_from_the_run_what_the_pipeline_s_steps_have_made(
    calls: list[tuple[Any, ...]], run: Run, examples: str
) -> None:
    record_results(run, **{**ORIGIN, "prepare": examples}, evaluate="m", control="of an older recipe")
    run_step("gate", run.id)
    assert calls == [("gate", {"measures": "m", **GIVEN, "examples": examples}, {"judged": "1"})]


@pytest.mark.parametrize("state", [None, StepState("distill", "failed", key="k")])
def test_a_step_whose_inputs_are_not_there_is_refused(
    calls: list[tuple[Any, ...]], run: Run, state: StepState | None
) -> None:
    record_results(run, **{**ORIGIN, "distill": ""})
    if state:
        run.record(state)
    with pytest.raises(UnderstudyError, match=r"^evaluate: run \S+ has no result of distill; run that one first$"):
        run_step("evaluate", run.id)
    assert calls == []


def test_the_champion_is_measured_with_the_others(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    store: Store,
    calls: list[tuple[Any, ...]],
    run: Run,
    examples: str,
) -> None:
    digest = model(store, tmp_path / "model")
    name_champion(monkeypatch, digest)
    record_results(run, **{**ORIGIN, "prepare": examples})
    run_step("evaluate", run.id)
    inputs = {"examples": examples, "teacher": "t", "student": "s", "champion": digest}
    assert calls == [("evaluate", inputs, {})]


def test_the_gate_knows_why_the_champion_was_not_measured(
    monkeypatch: pytest.MonkeyPatch, calls: list[tuple[Any, ...]], run: Run, examples: str
) -> None:
    def silent(uri: str, name: str) -> Champion:
        raise UnderstudyError("no answer")

    monkeypatch.setattr(champions, "champion", silent)
    record_results(run, **{**ORIGIN, "prepare": examples}, evaluate="m")
    run_step("evaluate", run.id)
    run_step("gate", run.id)
    assert calls[1][2] == {"champion_problem": "no answer", "judged": "1"}


def test_the_registration_knows_the_server(
    monkeypatch: pytest.MonkeyPatch, calls: list[tuple[Any, ...]], run: Run
) -> None:
    monkeypatch.setenv(URI, "https://mlflow.example")
    record_results(run, **ORIGIN, evaluate="m", gate="v")
    run_step("register", run.id)
    assert calls == [("register", {"measures": "m", "verdict": "v", **GIVEN}, {"server": "https://mlflow.example"})]


@pytest.mark.parametrize(("state", "verdicts"), [("reused", ["version 3"]), ("done", [])])
def test_a_reused_registration_of_a_pipeline_s_task_is_told_to_mlflow(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    store: Store,
    calls: list[tuple[Any, ...]],
    run: Run,
    state: Literal["reused", "done"],
    verdicts: list[str],
) -> None:
    staged = tmp_path / "registration"
    staged.mkdir()
    write_json(staged / "registration.json", {"parent_run_id": "p", "version": "3", "name": "n", "url": "u"})
    run.record(StepState("register", state, digest=store.objects.publish(staged, "registration", {})))
    record_results(run, **ORIGIN, evaluate="m", gate="v")
    sent: list[str] = []
    monkeypatch.setattr(verdict, "keep_verdict", lambda *arguments: sent.append(f"version {arguments[-1].version}"))
    run_step("register", run.id)
    assert sent == verdicts
    monkeypatch.setenv(RUN, run.id)  # the process that drives the pipeline has the verdict itself
    run_step("register", run.id)
    assert sent == verdicts


def test_a_task_says_its_error_in_one_message_and_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, digits: Recipe, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(HOME, str(tmp_path))
    values = digits.model_dump(mode="json", by_alias=True)
    with pytest.raises(SystemExit) as caught:
        start_component(values, "student.control=false", 0, "job-1", step_names(digits), fails=False)
    assert caught.value.code == 2
    output = capsys.readouterr()
    assert " ERROR understudy.steps.tasks: overrides: they change the pipeline's steps" in output.err
    assert len(output.err.splitlines()) == 1
    assert output.out == ""


def test_a_steps_task_says_its_error_in_one_message_and_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run_step(name: str, run_id: str) -> None:
        raise InputError(f"{name} of {run_id}: mend it")

    monkeypatch.setattr(tasks, "run_step", run_step)
    with pytest.raises(SystemExit) as caught:
        component("gate", "run-1")
    assert caught.value.code == 2
    assert capsys.readouterr().err.endswith(" ERROR understudy.steps.tasks: gate of run-1: mend it\n")


@pytest.mark.parametrize(
    ("name", "files", "facts", "words"),
    [
        ("ingest", {}, {"train": 1437, "test": 360}, "ingest: reused: records dddddddddddd: train 1437, test 360"),
        ("evaluate", {}, {"student/nll": 0.123456}, "evaluate: reused: measures dddddddddddd: student/nll 0.1235"),
        ("teacher", {}, {}, "teacher: reused: model dddddddddddd"),
        (
            "gate",
            {"verdict.json": {"approved": True, "headline": "approved: within 2 points of its teacher"}},
            {},
            "gate: reused: verdict dddddddddddd: approved: within 2 points of its teacher",
        ),
        (
            "gate",
            {"verdict.json": {"approved": False, "headline": "rejected by quality-against-teacher, latency"}},
            {},
            "gate: reused: verdict dddddddddddd: rejected by quality-against-teacher, latency",
        ),
        (
            "register",
            {"registration.json": {"version": "3", "name": "digits", "url": "https://mlflow.example/#/3"}},
            {},
            "register: reused: registration dddddddddddd: version 3 of digits, https://mlflow.example/#/3",
        ),
        (
            "register",
            {"registration.json": {"version": None, "name": "digits", "url": "https://mlflow.example/#/r"}},
            {},
            "register: reused: registration dddddddddddd: the gate rejected the student: recorded at "
            "https://mlflow.example/#/r, no version",
        ),
    ],
)
def test_the_last_line_of_a_tasks_log_says_what_came_out(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    store: Store,
    run: Run,
    name: str,
    files: dict[str, Any],
    facts: dict[str, Any],
    words: str,
) -> None:
    for file, content in files.items():
        write_json(tmp_path / file, content)

    def execute(step: Step, at: Store, run: Run, *_: object) -> Result:
        run.record(StepState(step.name, "reused"))
        return step.result("d" * 64, tmp_path, facts)

    monkeypatch.setenv(HOME, str(store.folder.parent))
    monkeypatch.setattr(tasks, "execute", execute)
    monkeypatch.setattr(tasks, "connect_to_run", lambda run: None)
    step = steps_of(Recipe.model_validate(run.recipe))[name]
    quiet = replace(step, outside=lambda *_: World(), follow=lambda *_: None)
    monkeypatch.setattr(tasks, "steps_of", lambda recipe: {name: quiet})
    monkeypatch.setattr(tasks, "inputs_of", lambda *_: {})
    with caplog.at_level("INFO", "understudy.steps.tasks"):
        run_step(name, run.id)
    assert caplog.messages[-1] == words


def test_the_last_words_of_a_task_are_in_its_pods_status(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def run_step(name: str, run_id: str) -> None:
        raise InputError("mend it")

    path = tmp_path / "termination-log"
    path.touch()
    monkeypatch.setattr(last_words, "PATH", path)
    monkeypatch.setattr(tasks, "run_step", run_step)
    with pytest.raises(SystemExit):
        component("gate", "run-1")
    assert path.read_text() == "mend it"


def published(store: Store, folder: Path, kind: str, **content: Any) -> str:
    folder.mkdir()
    write_json(folder / f"{kind}.json", content)
    return store.objects.publish(folder, kind, {})


@pytest.mark.parametrize("fails", [True, False])
def test_a_rejected_student_is_recorded_and_fails_the_run_by_its_rules_only_where_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, store: Store, run: Run, fails: bool
) -> None:
    registered = published(store, tmp_path / "r", "registration", version=None, name="n", url="https://m.example/#/r")
    headline = "rejected by quality-against-teacher"
    verdict = published(store, tmp_path / "v", "verdict", approved=False, headline=headline)
    run.record(StepState("gate", "done", digest=verdict))
    recorded: list[str] = []

    def component(name: str, run_id: str) -> Result:
        recorded.append(name)
        run.record(StepState(name, "done", digest=registered))
        return RESULT

    words = tmp_path / "termination-log"
    words.touch()
    monkeypatch.setattr(last_words, "PATH", words)
    monkeypatch.setenv(HOME, str(store.folder.parent))
    monkeypatch.setattr(tasks, "component", component)
    if fails:
        with pytest.raises(SystemExit) as caught:
            reject(run.id, fails)
        assert caught.value.code == 3
    else:
        reject(run.id, fails)
    assert recorded == ["register"]
    assert words.read_text().startswith("rejected by quality-against-teacher; the gate rejected") == fails
