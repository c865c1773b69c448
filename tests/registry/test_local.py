import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.registry.submitted import Pipeline
from understudy.errors import InputError
from understudy.registry.champion import champion
from understudy.registry.client import server_at


def test_a_local_database_that_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(InputError, match="cannot write MLflow's database"):
        server_at(f"sqlite:///{tmp_path}/mlflow.db").check()


def test_a_local_database_whose_folder_cannot_be_made_is_refused() -> None:
    with pytest.raises(InputError, match="/proc/nope: cannot be made; point --home or --tracking-uri elsewhere"):
        server_at("sqlite:////proc/nope/x").check()


def test_processes_that_make_the_local_backend_at_once_all_succeed(tmp_path: Path) -> None:
    code = (
        "from understudy.registry.client import mlflow_at\n"
        f"uri = 'sqlite:///{tmp_path}/home/mlflow.db'\n"
        "server = mlflow_at(uri); print(server.make_run(server.experiment('digits'), 0, {}, 'run'))"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    outcomes = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outcomes
    assert len({out for out, _ in outcomes}) == 2
    assert [error for _, error in outcomes] == ["", ""]
    assert sorted(path.name for path in (tmp_path / "home").iterdir()) == ["mlflow.db"]
    assert stat.S_ISREG((tmp_path / "home" / "mlflow.db").stat().st_mode)


def test_an_untouched_database_is_not_asked_twice(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    registration = pipeline.register()
    champion(pipeline.uri, registration.name)
    with monkeypatch.context() as patch:
        patch.setattr("understudy.registry.local.connect", lambda uri: pytest.fail("asked again"))
        assert champion(pipeline.uri, registration.name) is None
