import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from understudy.graph import REGISTRATION, node_of
from understudy.recipe import Recipe
from understudy.steps.register import FILE, _remember, step
from understudy.steps.step import Result, Step, Work
from understudy.store import Run, Store

Change = Callable[..., Recipe]
URI = "MLFLOW_TRACKING_URI"


def register(run: Run) -> Step:
    return step(node_of(Recipe.model_validate(run.recipe), REGISTRATION))


def test_a_server_counts_as_the_same_whoever_asks_it(monkeypatch: pytest.MonkeyPatch, store: Store, run: Run) -> None:
    worlds = []
    for uri in ("https://ann:secret@mlflow.example", "https://mlflow.example/", "https://other.example"):
        monkeypatch.setenv(URI, uri)
        worlds.append(register(run).outside(run, store, {}))
    assert worlds[0] == worlds[1] != worlds[2]
    assert "secret" not in str(worlds)


def test_the_local_server_counts_as_the_same_when_its_home_is_moved(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, store: Store, run: Run
) -> None:
    monkeypatch.delenv(URI, raising=False)
    assert register(run).outside(run, store, {}).facts == {"server": "sqlite:///mlflow.db"}
    monkeypatch.setenv(URI, f"sqlite:///{tmp_path}/elsewhere/mlflow.db")
    assert register(run).outside(run, store, {}).facts == {"server": f"sqlite:///{tmp_path}/elsewhere/mlflow.db"}


@pytest.mark.parametrize(
    ("registration", "remark"),
    [
        ({"version": "3", "candidate": "student"}, ""),
        ({"version": None}, "evidence recorded; no version, since the gate rejected the student"),
        (
            {"version": None, "candidate": "control"},
            "evidence recorded; no version, since the gate rejected the control",
        ),
    ],
)
def test_a_step_that_registered_nothing_is_remarked_on(
    run: Run, tmp_path: Path, registration: dict[str, str | None], remark: str
) -> None:
    (tmp_path / FILE).write_text(json.dumps(registration))
    assert register(run).remark(Result("register", "a" * 64, tmp_path, {})) == remark


@pytest.mark.parametrize(
    ("uri", "control", "roles"),
    [("http://server", False, {"a1", "b2"}), ("http://server", True, {"d4", "b2"}), ("sqlite:///x.db", False, set())],
)
def test_gc_is_told_what_went_to_a_server_that_may_show_a_part_only(
    store: Store, digits: Recipe, change: Change, uri: str, control: bool, roles: set[str]
) -> None:
    inputs = {"student": "a1", "teacher": "b2", "gate": "c3", "control": "d4"}
    recipe = change(digits, f"register.control={str(control).lower()}")
    _remember(cast(Work, SimpleNamespace(tracking_uri=uri, store=store, inputs=inputs, recipe=recipe)))
    assert set(store.registered) == roles
    assert len(store.servers) == 1
