"""Objects that are removed and objects that stay, on a real server whose admin deletes parts of a champion."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.registry.submitted import RECIPE, Pipeline, Server, connect, start_server
from tests.server.accounts import (
    ADMIN,
    ALIAS,
    COMMAND,
    PUBLIC_KEY,
    REVIEWER,
    SETTINGS,
    TRAINER,
    ask,
    done,
    make_accounts,
    with_account,
)
from tests.server.forks import in_forks
from understudy.registry.champion import champion, fetch
from understudy.registry.signature import PUBLIC

TWO_RUNS = """
import secrets, sys
from mlflow.entities.model_registry import ModelVersionTag
from mlflow.server import handlers
from understudy_server.gc import Trash, collect
trash = Trash(*sys.argv[1:])
store, registry = trash._store, handlers._get_model_registry_store()
experiment = store.create_experiment(secrets.token_hex(4), "mlflow-artifacts:/meanwhile")
runs = {store.create_run(experiment, "", 0, [], None).info.run_id for _ in range(2)}
for run in runs:
    store.delete_run(run)
lines = (line for line in collect(trash, 0, True) if any(run in line for run in runs))
first = next(lines)
[left] = [run for run in runs if run not in first]
"""
RESTORED = """
store.restore_run(left)
assert next(lines) == f"kept: run {left}; it was restored meanwhile"
"""
MADE = """
registry.create_registered_model("late")
registry.create_model_version("late", f"mlflow-artifacts:/meanwhile/{left}/artifacts", left)
assert next(lines) == f"kept: run {left}; version 1 of late, needs it"
"""
HIDDEN = MADE.replace(
    "assert", "registry.set_model_version_tag('late', '1', ModelVersionTag('mlflow.prompt.is_prompt', 'true'))\nassert"
).replace("late", "hidden")
MONTH = 30 * 86_400_000  # milliseconds


@pytest.fixture(scope="module")
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = start_server(tmp_path_factory.mktemp("collected"), COMMAND, **SETTINGS)
    make_accounts(server, TRAINER, REVIEWER)
    yield server
    server.stop()


def age(server: Server) -> None:
    """Let all that is deleted have been deleted a month ago."""
    with closing(sqlite3.connect(server.folder / "server.db", timeout=30)) as database, database:
        deleted = "where lifecycle_stage = 'deleted'"
        database.execute(f"update runs set deleted_time = deleted_time - {MONTH} {deleted}")
        at = "last_updated_timestamp_ms"
        database.execute(f"update logged_models set {at} = {at} - {MONTH} {deleted}")
        database.execute(f"update experiments set last_update_time = last_update_time - {MONTH} {deleted}")


def gc(server: Server, *options: str) -> "subprocess.CompletedProcess[str]":
    storage = {"MLFLOW_BACKEND_STORE_URI": f"sqlite:///{server.folder}/server.db"}
    storage["MLFLOW_ARTIFACTS_DESTINATION"] = str(server.folder / "files")
    command = [sys.executable, "-W", "ignore", "-m", "understudy_server.gc", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **storage})


def lines(server: Server, *options: str) -> set[str]:
    outcome = gc(server, *options)
    assert outcome.returncode == 0, outcome.stderr
    return set(outcome.stdout.splitlines())


def test_everything_that_a_version_needs_stays_and_other_old_deleted_objects_go(
    own_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PUBLIC, PUBLIC_KEY)
    uri = with_account(own_server, TRAINER)
    names = ("deleted-before", "deleted-after", "challenger", "stray")
    created = {name: Pipeline(tmp_path / name, uri, {**RECIPE, "name": name}).register() for name in names}
    admin = connect(with_account(own_server, ADMIN))
    versions = {name: admin.get_model_version(name, it.version) for name, it in created.items()}

    def delete(name: str) -> None:
        admin.delete_logged_model(versions[name].source.removeprefix("models:/"))
        admin.delete_run(versions[name].run_id)

    delete("deleted-before")
    for name in names[:2]:
        done(ask(own_server, REVIEWER, "POST", ALIAS, name=name, alias="champion", version=created[name].version))
    for name in names[1:]:
        delete(name)
    admin.delete_registered_model("stray")
    empty = admin.create_experiment("to go")
    run = admin.create_run(empty).info.run_id
    for experiment in (empty, admin.get_run(created["challenger"].parent_run_id).info.experiment_id):
        admin.delete_experiment(experiment)

    assert not [line for line in lines(own_server, "--days", "7", "--yes") if line.startswith("removed")], "too young"
    age(own_server)
    printed = lines(own_server, "--days", "7", "--yes")
    stray = versions.pop("stray")
    expected = [f"logged model {stray.source.removeprefix('models:/')}", f"run {stray.run_id}"]
    expected += [f"run {run}", f"experiment {empty}"]
    assert {f"removed: {it}" for it in expected} <= printed
    files = own_server.folder / "files"
    assert not list(files.glob(f"*/{stray.run_id}/artifacts"))
    for name, version in versions.items():
        assert any(line.startswith(f"kept: run {version.run_id}; version 1 of {name}") for line in printed)
        assert not [line for line in printed if line.startswith("removed") and version.run_id in line]
        assert list(files.glob(f"*/{version.run_id}/artifacts/verdict.json"))
    for name in names[:2]:
        result = champion(uri, name)
        assert result is not None
        (tmp_path / f"fetched-{name}").mkdir()
        assert fetch(uri, result, tmp_path / f"fetched-{name}").files


MEANWHILE = [(RESTORED, "active"), (MADE, "deleted"), (HIDDEN, "deleted")]


def test_objects_restored_or_used_by_a_version_after_the_listing_stay(own_server: Server, tmp_path: Path) -> None:
    arguments = [f"sqlite:///{own_server.folder}/server.db", str(own_server.folder / "files")]
    code = f"import os, sys; sys.argv[1:] = {arguments}; exec(os.environ['CODE'])"
    codes = [f"{TWO_RUNS}{meanwhile}print(store.get_run(left).info.lifecycle_stage)" for meanwhile, _ in MEANWHILE]
    ends = in_forks(code, [{"CODE": code} for code in codes], tmp_path)
    assert [(end.stdout, end.returncode) for end in ends] == [(f"{remaining}\n", 0) for _, remaining in MEANWHILE], ends


def test_a_grace_period_below_a_week_is_refused(own_server: Server) -> None:
    outcome = gc(own_server, "--days", "1", "--yes")
    assert outcome.returncode == 1
    assert "--days: give 7 or more" in outcome.stderr
