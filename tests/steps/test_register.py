from pathlib import Path

import pytest

from understudy.steps.register import REGISTER
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
