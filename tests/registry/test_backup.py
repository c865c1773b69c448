"""A registry and a store are backed up, all is lost, and the restored champion loads and has its signature.

With a real MLflow server, its accounts, and a real PostgreSQL; and the registry of a home, in SQLite.
"""

import io
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.registry import postgres
from tests.registry.saved_models import VIT, describe_images, save
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
from understudy.errors import InputError, UnderstudyError
from understudy.registry import audit
from understudy.registry.backup import back_up, restore, sqlite_dump
from understudy.registry.champion import champion, fetch
from understudy.registry.signature import PUBLIC
from understudy.store import Store
from understudy.store import backup as stores
from understudy.store.bucket import Bucket
from understudy.store.files import sha256
from understudy.store.vault import Vault


def silent(line: str) -> None:
    raise AssertionError(line)


def predicted(uri: str, name: str) -> Any:
    """The champion's prediction for a picture, with the model loaded as for serving."""
    import mlflow
    import pandas as pd

    connect(uri)
    picture = io.BytesIO()
    Image.new("L", (8, 8), 100).save(picture, "PNG")
    loaded = mlflow.pyfunc.load_model(f"models:/{name}@champion")
    return loaded.predict(pd.DataFrame({"image": [picture.getvalue()]})).values.tolist()


def a_step(store: Store) -> str:
    """A finished step's object."""
    lease = store.acquire(sha256(b"step"))
    assert lease is not None
    staged = lease.staging()
    (staged / "records").write_text("x" * 100)
    return store.conclude(lease, "ingest", {}, staged, "records", {}, {}, 2.0)


@contextmanager
def server_on(folder: Path, uri: str) -> Iterator[Server]:
    folder.mkdir(exist_ok=True)
    server = start_server(folder, COMMAND, **{**SETTINGS, "MLFLOW_BACKEND_STORE_URI": uri})
    try:
        yield server
    finally:
        server.stop()


@pytest.mark.full
def test_after_a_loss_the_champion_loads_its_signature_is_valid_and_the_store_is_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PUBLIC, PUBLIC_KEY)
    vaults = {kind: Vault(f"file://{tmp_path}/vault/{kind}") for kind in ("store", "registry")}
    dump = tmp_path / "dump"
    with postgres.running() as database, server_on(tmp_path / "before", database) as server:
        make_accounts(server, TRAINER, REVIEWER)
        pipeline = Pipeline(tmp_path / "home", with_account(server, TRAINER), {**RECIPE, "name": "kept"})
        registration = pipeline.register(student=pipeline.adopt(save(tmp_path / "vit", VIT, describe_images())))
        done(
            ask(server, REVIEWER, "POST", ALIAS, name=registration.name, alias="champion", version=registration.version)
        )
        prediction, digest = predicted(with_account(server, TRAINER), registration.name), a_step(pipeline.store)
        last = audit.verify(audit.lines_of(with_account(server, ADMIN)), "").last

        subprocess.run([postgres.program("pg_dump"), "-Fc", "--no-owner", "-f", dump, database], check=True)
        files = Bucket((server.folder / "files").as_uri())
        registry = back_up(vaults["registry"], dump, "postgresql", files, silent)
        store = stores.back_up(pipeline.store, vaults["store"], silent)
    for lost in (server.folder, pipeline.store.folder):
        shutil.rmtree(lost)
    dump.unlink()
    print(f"registry {registry.size} bytes, store {store.size} bytes")

    with postgres.running() as database:
        stores.restore(vaults["store"], store, pipeline.store.folder)
        restore(vaults["registry"], registry, dump, Bucket((tmp_path / "after" / "files").as_uri()))
        options = ["--no-owner", "--exit-on-error", "--single-transaction", f"--dbname={database}"]
        subprocess.run([postgres.program("pg_restore"), *options, dump], check=True)
        with server_on(tmp_path / "after", database) as server:
            restored = champion(with_account(server, TRAINER), registration.name)
            assert restored is not None, "its signature was checked, too"
            (tmp_path / "fetched").mkdir()
            assert fetch(with_account(server, TRAINER), restored, tmp_path / "fetched").files
            assert predicted(with_account(server, TRAINER), registration.name) == prediction
            assert audit.verify(audit.lines_of(with_account(server, ADMIN)), last).last == last
            assert ask(server, TRAINER, "POST", "runs/delete", run_id=registration.parent_run_id)[0] == 403, (
                "kept, as before"
            )
    step = Store(pipeline.store.folder).cached_step(sha256(b"step"))
    assert step is not None
    assert step.digest == digest


def test_the_registry_of_a_home_is_restored_beside_its_store(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    pipeline = Pipeline(home, f"sqlite:///{home}/mlflow.db")
    registration = pipeline.register()
    vault = Vault(f"file://{tmp_path}/vault")
    with sqlite_dump(home / "mlflow.db") as copy:
        snapshot = back_up(vault, copy, "sqlite", Bucket((home / "mlartifacts").as_uri()), silent)
    before = vault.sent
    with sqlite_dump(home / "mlflow.db") as copy:
        again = back_up(vault, copy, "sqlite", Bucket((home / "mlartifacts").as_uri()), silent)
    assert vault.sent == before, "nothing had changed"
    assert again.entries == snapshot.entries

    os.rename(home, tmp_path / "lost")
    home.mkdir()
    restore(vault, snapshot, home / "mlflow.db", Bucket((home / "mlartifacts").as_uri()))
    with closing(sqlite3.connect(home / "mlflow.db")) as database:
        assert database.execute("select name, version from model_versions").fetchall() == [(registration.name, 1)]
    restored_files = {path.relative_to(home) for path in (home / "mlartifacts").rglob("*")}
    assert restored_files == {
        path.relative_to(tmp_path / "lost") for path in (tmp_path / "lost" / "mlartifacts").rglob("*")
    }


def a_registry(folder: Path) -> tuple[Path, Bucket]:
    """A dump and a bucket with a file."""
    (folder / "files" / "1").mkdir(parents=True)
    (folder / "files" / "1" / "model").write_text("weights")
    (folder / "dump").write_text("rows")
    return folder / "dump", Bucket((folder / "files").as_uri())


def test_a_file_that_is_as_it_was_is_not_read_again_and_one_that_changed_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dump, files = a_registry(tmp_path)
    vault = Vault(f"file://{tmp_path}/vault")
    first = back_up(vault, dump, "postgresql", files, silent)
    with monkeypatch.context() as patched:
        patched.setattr(Bucket, "get", lambda *_: pytest.fail("it was read"))
        back_up(vault, dump, "postgresql", files, silent)
    (tmp_path / "files" / "1" / "model").write_text("WEIGHTS")
    second = back_up(vault, dump, "postgresql", files, silent)
    assert first.entries[1].sha256 != second.entries[1].sha256


def test_a_registry_that_lost_its_files_is_not_backed_up_as_one_without_files(tmp_path: Path) -> None:
    dump, files = a_registry(tmp_path)
    vault = Vault(f"file://{tmp_path}/vault")
    back_up(vault, dump, "postgresql", files, silent)
    with pytest.raises(UnderstudyError, match="no file is there, and the newest snapshot has some"):
        back_up(vault, dump, "postgresql", Bucket((tmp_path / "elsewhere").as_uri()), silent)


def test_nothing_is_restored_over_something_else(tmp_path: Path) -> None:
    dump, files = a_registry(tmp_path)
    vault = Vault(f"file://{tmp_path}/vault")
    snapshot = back_up(vault, dump, "postgresql", files, silent)
    with pytest.raises(InputError, match="dump is there already"):
        restore(vault, snapshot, dump, files)
    (tmp_path / "files" / "other").write_text("x")
    with pytest.raises(InputError, match="files: other is there already"):
        restore(vault, snapshot, tmp_path / "new", files)


def test_without_all_files_there_is_no_database(tmp_path: Path) -> None:
    dump, files = a_registry(tmp_path)
    vault = Vault(f"file://{tmp_path}/vault")
    snapshot = back_up(vault, dump, "postgresql", files, silent)
    (damaged,) = [entry for entry in snapshot.entries if entry.path == "files/1/model"]
    (tmp_path / "vault" / "files" / damaged.sha256[:2] / damaged.sha256).write_text("?")
    with pytest.raises(UnderstudyError, match="files/1/model of a snapshot, is damaged or missing"):
        restore(vault, snapshot, tmp_path / "new", Bucket((tmp_path / "there").as_uri()))
    assert not (tmp_path / "new").exists()


def test_a_snapshot_without_a_database_is_refused_before_any_file_is_written(tmp_path: Path) -> None:
    vault = Vault((tmp_path / "vault").as_uri())
    snapshot = vault.commit("registry", "sqlite", [vault.add_bytes(b"x", "files/a")])
    with pytest.raises(UnderstudyError, match=rf"snapshots/{snapshot.name}\.json was changed .* no file 'database'"):
        restore(vault, snapshot, tmp_path / "mlflow.db", Bucket((tmp_path / "files").as_uri()))
    assert not (tmp_path / "files").exists()
