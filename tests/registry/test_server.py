"""Where the server is, and the errors about one that cannot be used."""

import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.registry.submitted import Pipeline, Server
from understudy.errors import InputError, UnderstudyError
from understudy.registry.champion import champion
from understudy.registry.client import server_at
from understudy.registry.register import is_registered
from understudy.registry.server import (
    PAGES,
    address,
    for_people,
    identity,
    public_uri,
    redacted,
    run_page,
    tracking_uri,
)

words = st.text("abcdefghij0123456789", min_size=4, max_size=12)


def test_the_servers_address_is_given_or_from_the_environment_or_local(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tracking_uri(tmp_path, None) == f"sqlite:///{tmp_path}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://a:5000/")
    assert tracking_uri(tmp_path, None) == "http://a:5000"
    assert tracking_uri(tmp_path, "https://b/prefix") == "https://b/prefix"
    monkeypatch.chdir(tmp_path)
    assert tracking_uri(tmp_path, "sqlite:///own.db") == f"sqlite:///{tmp_path}/own.db"


def test_the_homes_own_database_is_the_same_server_wherever_the_home_lies(tmp_path: Path) -> None:
    homes = [tmp_path / "a", tmp_path / "b"]
    assert {identity(tracking_uri(home, None), home) for home in homes} == {"sqlite:///mlflow.db"}
    assert address("sqlite:///mlflow.db", homes[1]) == tracking_uri(homes[1], None)
    elsewhere = f"sqlite:///{tmp_path}/c/mlflow.db"
    assert identity(elsewhere, homes[0]) == address(elsewhere, homes[0]) == elsewhere


PAGE = "/#/experiments/1/runs/2?workflowType=machine_learning"


def test_a_page_is_where_people_see_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_page("http://mlflow:5000", "1", "2") == f"http://mlflow:5000{PAGE}"
    monkeypatch.setenv(PAGES, "https://mlflow.example.com/team/")
    assert run_page("http://mlflow:5000", "1", "2") == f"https://mlflow.example.com/team{PAGE}"
    assert for_people(f"http://mlflow:5000{PAGE}") == f"https://mlflow.example.com/team{PAGE}"
    assert run_page("sqlite:///mlflow.db", "1", "2") == for_people("runs:/2") == "runs:/2"
    monkeypatch.setenv(PAGES, "mlflow.example.com")
    with pytest.raises(InputError, match=r"UNDERSTUDY_MLFLOW_UI: mlflow\.example\.com: give the whole address"):
        for_people(f"http://mlflow:5000{PAGE}")


@given(words, words, st.sampled_from(["http", "https", "postgresql", "mysql+pymysql"]))
def test_credentials_are_not_public(user: str, password: str, scheme: str) -> None:
    uri = f"{scheme}://{user}:{password}@Example.org:8080/path"
    assert public_uri(uri) == identity(uri, Path()) == f"{scheme}://example.org:8080/path"
    line = redacted(uri, f"cannot reach {uri} as {user} with {password}\nmore")
    assert password not in line.replace(public_uri(uri), "")


def test_a_server_that_does_not_listen_is_named_with_the_way_out() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for uri in (f"http://me:secret@127.0.0.1:{port}", f"postgresql://me:secret@127.0.0.1:{port}/db"):
        with pytest.raises(UnderstudyError, match=rf"127\.0\.0\.1:{port}.*MLflow cannot be used.*run again") as caught:
            server_at(uri).check()
        assert "secret" not in str(caught.value)
        assert caught.value.exit_code == 1


def test_a_http_server_keeps_versions_and_never_sees_credentials(
    server: Server, make_pipeline: Callable[..., Pipeline], capfd: pytest.CaptureFixture[str]
) -> None:
    secret = server.uri.replace("http://", "http://me:topsecret@")
    pipeline = make_pipeline(secret)
    registration = pipeline.register()
    assert registration.version == "1"
    assert registration.url.startswith(f"{server.uri}/#/experiments/")
    assert server_at(secret).aliases("digits") == {"challenger": "1"}
    digest = pipeline.model(b"student", _history())
    assert is_registered(secret, registration, digest)
    assert champion(secret, "digits") is None
    assert champion(secret, "unheard of") is None
    rejected = pipeline.register(run=pipeline.new_run(), approved=False, weights=b"weak")
    assert is_registered(secret, rejected, "")
    output = capfd.readouterr()
    written = b"".join(
        path.read_bytes() for path in pipeline.run.folder.rglob("*") if path.name != "run.json" and path.is_file()
    )
    files = b"".join(path.read_bytes() for path in _files(server))
    assert "topsecret" not in output.out + output.err
    assert b"topsecret" not in written + files
    server.stop()
    began = time.monotonic()
    with pytest.raises(UnderstudyError, match="MLflow cannot be used") as caught:
        pipeline.register(run=pipeline.new_run(), weights=b"late")
    assert "topsecret" not in str(caught.value)
    assert time.monotonic() - began < 60


def _history() -> list[dict[str, float]]:
    from tests.registry.submitted import HISTORY

    return HISTORY


def _files(server: Server) -> list[Path]:
    folder = Path(f"/proc/{server.process.pid}/cwd").resolve()
    return [path for path in folder.rglob("*") if path.is_file() and path.name != "server.log"]


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("http://[::1", "this is not an address"),
        ("postgresql://u:p@h:abc/x", "this is not an address"),
        ("foo://host", "MLflow does not support foo://; it supports databricks, file, http, "),
    ],
)
def test_an_address_that_cannot_be_one_is_wrong_input(tmp_path: Path, uri: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        tracking_uri(tmp_path, uri)
