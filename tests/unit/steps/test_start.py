from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from understudy.errors import Forbidden, InputError, UnderstudyError
from understudy.recipe import Recipe
from understudy.registry import client
from understudy.steps import step_names
from understudy.steps.environment import HOME, RUN, open_store
from understudy.steps.start import start
from understudy.store import Run


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(HOME, str(tmp_path / "home"))
    monkeypatch.delenv(RUN, raising=False)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


@pytest.fixture
def values(digits: Recipe) -> dict[str, Any]:
    return digits.model_dump(mode="json", by_alias=True)


def begin(values: dict[str, Any], overrides: str = "", seed: int = 0, job_id: str = "job-1") -> Run:
    return open_store().run(start(values, overrides, seed, job_id, step_names(Recipe.model_validate(values))).run)


def test_the_run_has_the_recipe_with_the_runs_own_values(values: dict[str, Any], digits: Recipe) -> None:
    run = begin(values, "student.distill.logits.temperature=5\nteacher.train.epochs=2; gate.margin=0.1", seed=7)
    recipe = Recipe.model_validate(run.recipe)
    assert run.id == "job-1"
    assert recipe.seed == 7
    assert recipe.student.distill[1].temperature == 5
    assert (recipe.teacher.train and recipe.teacher.train.epochs, recipe.gate.margin) == (2, 0.1)
    assert recipe.student.model == digits.student.model


def test_a_seed_among_the_overrides_wins(values: dict[str, Any]) -> None:
    assert begin(values, "seed=3", seed=7).recipe["seed"] == 3


def test_a_first_task_that_is_tried_again_takes_the_run_that_is_there(values: dict[str, Any]) -> None:
    first = begin(values, seed=7)
    assert begin(values, seed=7).folder == first.folder
    assert len(open_store().runs()) == 1


def test_here_the_run_is_the_one_that_the_command_made(monkeypatch: pytest.MonkeyPatch, values: dict[str, Any]) -> None:
    run = open_store().create_run("digits", values, "")
    monkeypatch.setenv(RUN, run.id)
    assert begin(values).id == run.id
    assert len(open_store().runs()) == 1


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ("student.control=false", r"overrides: they change the pipeline's steps from .*control.* to .*; compile"),
        ("student.tempo=5", r"student\.tempo"),
        (
            "student.distill.logits.temperature=-1",
            r"overrides student\.distill\.logits\.temperature=-1: .*greater than 0",
        ),
        ("student.distill.logits.temperature", r"write it as a\.b\.c=value"),
        ("seed=x", r"overrides seed=x"),
    ],
)
def test_overrides_that_cannot_be_are_refused_and_leave_no_run(
    values: dict[str, Any], overrides: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        begin(values, overrides)
    assert not open_store().runs()


def test_two_wrong_overrides_are_one_message_with_a_line_for_each(values: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        begin(values, "student.distill.logits.temperature=-1; gate.margin=7")
    assert {line.split(":")[0] for line in str(caught.value).splitlines()} == {
        "overrides student.distill.logits.temperature=-1",
        "overrides gate.margin=7",
    }


def test_a_seed_that_cannot_be_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"overrides seed=-1"):
        begin(values, seed=-1)


class Server:
    """What start asks of a tracking server; its first request ends in an error."""

    def __init__(self, error: UnderstudyError) -> None:
        self._error = error

    def experiment(self, name: str) -> str:
        raise self._error


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Callable[[UnderstudyError], None]:
    """Let the tracking server answer every request with an error."""

    def answer(error: UnderstudyError) -> None:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://mlflow.example/x")
        monkeypatch.setattr(client, "server_at", lambda uri: Server(error))

    return answer


def test_a_missing_right_is_told_by_the_first_task(
    values: dict[str, Any], answers: Callable[[UnderstudyError], None]
) -> None:
    answers(Forbidden("MLflow refuses access (403)"))
    with pytest.raises(Forbidden, match="refuses access"):
        begin(values)


def test_a_server_that_does_not_answer_stops_no_run(
    values: dict[str, Any], answers: Callable[[UnderstudyError], None], caplog: pytest.LogCaptureFixture
) -> None:
    answers(UnderstudyError("MLflow cannot be used"))
    assert begin(values).id == "job-1"
    assert "MLflow cannot be used" in caplog.text


@pytest.mark.parametrize("uri", ["https://ann:hunter2@mlflow.example/x"])
def test_the_runs_folder_holds_no_credentials(
    monkeypatch: pytest.MonkeyPatch,
    values: dict[str, Any],
    uri: str,
    answers: Callable[[UnderstudyError], None],
) -> None:
    answers(UnderstudyError("away"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    run = begin(values)
    assert run.facts.tracking_uri == "https://mlflow.example/x"
    assert not any(b"hunter2" in path.read_bytes() for path in run.folder.rglob("*") if path.is_file())
