from pathlib import Path

import pytest

from understudy.steps.register import register_world
from understudy.store import Store

URI = "MLFLOW_TRACKING_URI"


def test_a_server_counts_as_the_same_whoever_asks_it(monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    worlds = []
    for uri in ("https://ann:secret@mlflow.example", "https://mlflow.example/", "https://other.example"):
        monkeypatch.setenv(URI, uri)
        worlds.append(register_world(store))
    assert worlds[0] == worlds[1] != worlds[2]
    assert "secret" not in str(worlds)


def test_the_local_server_counts_by_its_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, store: Store) -> None:
    monkeypatch.delenv(URI, raising=False)
    assert register_world(store) == {"server": f"sqlite:///{tmp_path}/mlflow.db"}
