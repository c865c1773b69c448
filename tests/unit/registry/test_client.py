import subprocess
import sys
from pathlib import Path

import pytest

from understudy.registry.client import mlflow_at, server_at
from understudy.registry.local import LocalDatabase
from understudy.registry.over_mlflow import OverMlflow
from understudy.registry.over_rest import OverRest


@pytest.mark.parametrize(
    ("uri", "kind"),
    [
        ("http://mlflow.example:5000", OverRest),
        ("https://user:password@mlflow.example/path", OverRest),
        ("sqlite:////home/mlflow.db", LocalDatabase),
        ("postgresql://mlflow.example/db", OverMlflow),
        ("databricks", OverMlflow),
    ],
)
def test_the_address_decides_how_a_server_is_asked(uri: str, kind: type) -> None:
    assert type(server_at(uri)) is kind


@pytest.mark.parametrize("name", ["MLFLOW_TRACKING_AUTH", "MLFLOW_TRACKING_AWS_SIGV4"])
def test_a_clouds_way_of_signing_in_is_left_to_mlflow(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "true")
    assert type(server_at("https://mlflow.example")) is OverMlflow


def test_a_pods_own_token_is_none_of_these_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_AUTH", "understudy")
    assert type(server_at("https://mlflow.example")) is OverRest


def test_files_go_through_mlflow_for_any_address(tmp_path: Path) -> None:
    assert type(mlflow_at(f"sqlite:///{tmp_path}/mlflow.db")) is LocalDatabase


def test_choosing_a_server_does_not_import_mlflow() -> None:
    code = (
        "import sys; from understudy.registry.client import server_at\n"
        "for uri in ('http://a', 'sqlite:////b/c.db', 'postgresql://d/e'): server_at(uri)\n"
        "assert 'mlflow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
