import json
import shutil
from pathlib import Path

import pytest

from understudy.store import Store
from understudy.store.files import sha256


@pytest.fixture
def vault(tmp_path: Path) -> str:
    return f"file://{tmp_path / 'vault'}"


def test_a_store_comes_back_from_its_newest_snapshot(understudy, make, store: Store, vault: str) -> None:
    digest = make("x")
    backup = understudy("backup", "store", vault)
    assert backup.code == 0
    name, summary = backup.out.split(": ", 1)
    assert "files" in summary
    (row,) = json.loads(understudy("backup", "ls", vault, "--json").out)
    assert (row["name"], row["kind"]) == (name, "store")
    assert "all bytes verified, no damage" in understudy("backup", "verify", vault, name).out
    assert understudy("backup", "restore", vault, name).code == 2, "there is a store"
    shutil.rmtree(store.folder)
    restored = understudy("backup", "restore", vault, name)
    assert (restored.code, f"{name}: " in restored.out) == (0, True)
    cached = Store(store.folder).cached_step(sha256(b"x"))
    assert cached is not None
    assert cached.digest == digest


def test_older_snapshots_stay_while_an_object_is_damaged(understudy, make, store: Store, vault: str) -> None:
    digest = make("x")
    assert understudy("backup", "store", vault).code == 0
    [damaged] = [path for path in store.objects.path(digest).iterdir() if path.name != "manifest.json"]
    damaged.chmod(0o644)
    damaged.write_text("")
    outcome = understudy("backup", "store", vault, "--forget-after", "30")
    assert (outcome.code, "1 damaged objects are not in this snapshot" in outcome.err) == (1, True)
    assert "removed" not in outcome.out


def test_a_servers_registry_needs_its_dump_and_its_files(understudy, vault: str, tmp_path: Path) -> None:
    outcome = understudy("--tracking-uri", "http://user:secret@mlflow:5000", "backup", "registry", vault)
    assert outcome.code == 2
    assert "http://mlflow:5000: a server's registry is backed up from a dump" in outcome.err
    assert "secret" not in outcome.err
    (tmp_path / "dump").write_text("rows")
    outcome = understudy("backup", "registry", vault, "--dump", "dump")
    assert (outcome.code, "--files: give the location of the server's files" in outcome.err) == (2, True)
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "model").write_text("weights")
    backup = understudy("backup", "registry", vault, "--dump", "dump", "--files", "files", "--forget-after", "30")
    assert (backup.code, "0 older snapshots removed" in backup.out) == (0, True)
    name = backup.out.split(":")[0]
    assert "give --dump FILE for postgresql" in understudy("backup", "restore", vault, name).err
    done = understudy("backup", "restore", vault, name, "--dump", "again", "--files", "there")
    assert "now: pg_restore --no-owner --exit-on-error" in done.out
    assert ((tmp_path / "again").read_text(), (tmp_path / "there" / "model").read_text()) == ("rows", "weights")


def test_without_a_registry_in_the_home_there_is_nothing_to_back_up(understudy, vault: str) -> None:
    outcome = understudy("backup", "registry", vault)
    assert (outcome.code, "mlflow.db: there is no registry here to back up" in outcome.err) == (2, True)
