"""A registry that nobody here may write to."""

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.registry.reviewers import folder_of
from tests.registry.submitted import Pipeline
from understudy.cli import app
from understudy.errors import UnderstudyError
from understudy.registry.read_only import readable
from understudy.registry.review import review, up_for_review
from understudy.registry.server import database


@pytest.fixture
def locked(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """A student's registry that is read-only from now on."""
    pipeline.register()
    path = database(pipeline.uri)
    assert path is not None
    access = os.access

    def refused(target: Path, mode: int) -> bool:  # root, who runs the tests perhaps, may write everywhere
        return access(target, mode) and not (mode == os.W_OK and str(target).startswith(str(path.parent)))

    monkeypatch.setattr(os, "access", refused)
    return pipeline


def everything(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in folder.rglob("*")}


def test_versions_under_review_and_their_evidence_can_be_read_and_nothing_changes(locked: Pipeline) -> None:
    path = database(locked.uri)
    assert path is not None
    before = everything(path.parent)
    with readable(locked.uri) as uri:
        assert uri != locked.uri
        name = locked.recipe.model_name
        assert [challenger.name for challenger, _ in up_for_review(uri, name)] == [name]
        assert f"# {name}, version 1, against no champion" in review(uri, name).text()
        copy = database(uri)
    assert everything(path.parent) == before
    assert copy is not None
    assert not copy.parent.exists()


@pytest.mark.parametrize("uri", ["http://server:5000", "sqlite:////nowhere/mlflow.db"])
def test_other_registries_are_asked_themselves(uri: str) -> None:
    with readable(uri) as readable_uri:
        assert readable_uri == uri


def test_an_unreadable_registry_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mlflow.db").write_bytes(b"no database" * 100)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with (
        pytest.raises(UnderstudyError, match=r"mlflow.db: MLflow's database cannot be read"),
        readable(f"sqlite:///{tmp_path}/mlflow.db"),
    ):
        pass


def test_the_command_compares_with_files_and_changes_nothing(locked: Pipeline, tmp_path: Path) -> None:
    path = database(locked.uri)
    assert path is not None
    before, folder = everything(path.parent), folder_of(tmp_path / "promotions")
    arguments = ["--tracking-uri", locked.uri, "review"]
    done = CliRunner().invoke(app, [*arguments, "apply", str(folder), "--check"])
    assert (done.exit_code, done.stdout) == (0, "registry and files agree\n"), done.exception
    listed = CliRunner().invoke(app, arguments)
    assert locked.recipe.model_name in listed.stdout
    assert everything(path.parent) == before
    refused = CliRunner().invoke(app, [*arguments, "apply", str(folder)])
    assert "cannot write MLflow's database" in str(refused.exception)


def test_an_error_names_the_original(locked: Pipeline) -> None:
    path = database(locked.uri)
    assert path is not None
    with pytest.raises(UnderstudyError) as raised, readable(locked.uri) as uri:
        raise UnderstudyError(f"{database(uri)}: its artifacts are elsewhere")
    assert str(raised.value) == f"{path}: its artifacts are elsewhere"
