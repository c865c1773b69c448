from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from understudy.steps.register import REGISTER, _remember
from understudy.steps.step import Work
from understudy.store import Run, Store

URI = "MLFLOW_TRACKING_URI"


def test_a_server_counts_as_the_same_whoever_asks_it(monkeypatch: pytest.MonkeyPatch, store: Store, run: Run) -> None:
    worlds = []
    for uri in ("https://ann:secret@mlflow.example", "https://mlflow.example/", "https://other.example"):
        monkeypatch.setenv(URI, uri)
        worlds.append(REGISTER.outside(run, store, {}))
    assert worlds[0] == worlds[1] != worlds[2]
    assert "secret" not in str(worlds)


def test_the_local_server_counts_as_the_same_when_its_home_is_moved(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, store: Store, run: Run
) -> None:
    monkeypatch.delenv(URI, raising=False)
    assert REGISTER.outside(run, store, {}).facts == {"server": "sqlite:///mlflow.db"}
    monkeypatch.setenv(URI, f"sqlite:///{tmp_path}/elsewhere/mlflow.db")
    assert REGISTER.outside(run, store, {}).facts == {"server": f"sqlite:///{tmp_path}/elsewhere/mlflow.db"}


@pytest.mark.parametrize(("uri", "told"), [("http://server", {"a1", "b2"}), ("sqlite:///x.db", set())])
def test_gc_is_told_what_went_to_a_server_that_may_show_a_part_only(store: Store, uri: str, told: set[str]) -> None:
    inputs = {"student": "a1", "teacher": "b2", "gate": "c3"}
    _remember(cast(Work, SimpleNamespace(tracking_uri=uri, store=store, inputs=inputs)))
    assert set(store.registered) == told
    assert len(store.servers) == 1
