"""A promotion knows of uploads that were allowed before it and have not ended."""

import secrets
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine

from tests.registry.submitted import RECIPE, Pipeline, Server, connect
from tests.server.accounts import ADMIN, ALIAS, REVIEWER, TRAINER, ask, done, with_account
from understudy_server import uploads
from understudy_server.uploads import create_table, folders, in_progress, uploading


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    created = create_engine(f"sqlite:///{tmp_path}/server.db")
    create_table(created)
    return created


def test_an_upload_is_found_below_all_of_its_folders_until_it_ends(engine: Engine) -> None:
    with uploading(engine, "1/models/m-2/artifacts/serving.py"), uploading(engine, "1/models/m-3/conda.yaml"):
        assert in_progress(engine, ["1/models/m-2"]) == ["1/models/m-2/artifacts/serving.py"]
        assert in_progress(engine, ["1/models/m"]) == []
        assert len(in_progress(engine, ["1"])) == 2
    assert in_progress(engine, ["1"]) == []


def test_an_upload_that_fails_has_ended_too(engine: Engine) -> None:
    with pytest.raises(OSError), uploading(engine, "1/a"):  # noqa: PT011
        raise OSError
    assert in_progress(engine, ["1"]) == []


def test_an_upload_whose_server_was_killed_counts_for_a_day(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    with uploading(engine, "1/a"):
        monkeypatch.setattr(uploads.time, "time", lambda: now + 23 * 3600)
        assert in_progress(engine, ["1"])
        monkeypatch.setattr(uploads.time, "time", lambda: now + 25 * 3600)
        assert not in_progress(engine, ["1"])


def test_folders_are_all_that_a_path_is_below() -> None:
    assert folders("a/b/c") == ["a", "a/b", "a/b/c"]


def test_no_version_is_promoted_during_an_upload_over_its_files(
    guarded: Server, make_pipeline: Callable[..., Pipeline]
) -> None:
    """As a large upload to S3 would: its row is there, and its content is unknown yet."""
    recipe = {**RECIPE, "name": "uploading"}
    created = make_pipeline(with_account(guarded, TRAINER), recipe).register(weights=secrets.token_bytes(4))
    client = connect(with_account(guarded, ADMIN))
    source = client.get_model_version(created.name, created.version).source
    location = client.get_logged_model(source.removeprefix("models:/")).artifact_location.removeprefix(
        "mlflow-artifacts:/"
    )
    with sqlite3.connect(guarded.folder / "server.db") as database:
        row = ("one", f"{location}/serving.py", time.time())
        database.execute("insert into understudy_uploads values (?, ?, ?)", row)
    refused = ask(guarded, REVIEWER, "POST", ALIAS, name=created.name, alias="champion", version=created.version)
    assert refused[0] == 503
    assert "serving.py" in str(refused[1])
    assert "champion" not in client.get_registered_model(created.name).aliases
    with sqlite3.connect(guarded.folder / "server.db") as database:
        database.execute("delete from understudy_uploads where id = 'one'")
    done(ask(guarded, REVIEWER, "POST", ALIAS, name=created.name, alias="champion", version=created.version))
