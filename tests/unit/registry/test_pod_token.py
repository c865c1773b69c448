import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.kube.api_server import POD as OWN
from tests.unit.kube.api_server import ApiServer, api_server
from understudy.errors import Forbidden, UnderstudyError
from understudy.registry import pod_token
from understudy.registry.pod_token import Requested, token


@pytest.fixture
def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder into which the kubelet puts a token."""
    monkeypatch.setenv("MLFLOW_TRACKING_AUTH", "understudy")
    monkeypatch.setenv("UNDERSTUDY_MLFLOW_TOKEN", str(tmp_path))
    return tmp_path


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    """A pod without that folder."""
    monkeypatch.setenv("MLFLOW_TRACKING_AUTH", "understudy")
    monkeypatch.setattr(pod_token, "REQUESTED", Requested())
    with api_server(tmp_path) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server


def test_no_token_is_sent_unless_the_setting_asks_for_it(mounted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (mounted / "token").write_text("a token")
    monkeypatch.delenv("MLFLOW_TRACKING_AUTH")
    assert token() is None


def test_a_token_that_was_replaced_is_the_next_one_that_is_sent(mounted: Path) -> None:
    for written in ("the first\n", "the second\n"):
        (mounted / "token").write_text(written)
        assert token() == written.strip()


@pytest.mark.parametrize(("content", "message"), [(None, "there is no token for MLflow"), (" \n", "is empty")])
def test_a_missing_token_is_an_error_and_no_other_token_is_sent(
    mounted: Path, content: str | None, message: str
) -> None:
    if content:
        (mounted / "token").write_text(content)
    with pytest.raises(UnderstudyError, match=message):
        token()


def test_a_pod_that_has_no_such_folder_asks_for_a_token_that_ends_with_it(cluster: ApiServer) -> None:
    issued = token()
    assert issued is not None
    claims = pod_token._payload(issued)
    assert (claims["aud"], claims["sub"]) == (["mlflow"], "system:serviceaccount:understudy:understudy-pipeline")
    assert claims["kubernetes.io"]["pod"] == OWN
    assert issued != (cluster.folder / "token").read_text().strip()
    assert token() == issued


def test_another_one_is_asked_for_before_the_last_one_ends(cluster: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    first, now = token(), time.time()
    monkeypatch.setattr(time, "time", lambda: now + 0.7 * 3600)
    assert token() == first
    monkeypatch.setattr(time, "time", lambda: now + 0.81 * 3600)
    assert token() != first


def test_a_pod_without_permission_gets_an_error_with_the_fix(cluster: ApiServer) -> None:
    cluster.status = 403
    message = (
        r"understudy-pipeline/token with 403; the pod's account has no permission.* let understudy-pipeline create"
    )
    with pytest.raises(Forbidden, match=message):
        token()


@pytest.mark.parametrize("odd", ["", "no token", "a.b.c"])
def test_a_token_that_cannot_be_read_is_named(cluster: ApiServer, odd: str) -> None:
    (cluster.folder / "token").write_text(odd)
    with pytest.raises(UnderstudyError, match="the pod's token cannot be read"):
        token()


def test_the_volume_is_one_of_a_short_token_for_mlflow_alone() -> None:
    [source] = json.loads(json.dumps(pod_token.VOLUME))["projected"]["sources"]
    assert source["serviceAccountToken"]["audience"] == "mlflow"
    assert source["serviceAccountToken"]["expirationSeconds"] == 3600


def test_asking_needs_neither_mlflow_nor_the_kubernetes_client() -> None:
    code = "import sys, understudy.registry.pod_token; assert not {'mlflow', 'kubernetes'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)
