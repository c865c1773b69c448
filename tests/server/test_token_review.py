from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.kube.api_server import API, ApiServer, api_server
from understudy.errors import UnderstudyError
from understudy_server.token_review import TokenRefusedError, service_account


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    with api_server(tmp_path) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server


def test_a_token_names_its_service_account(cluster: ApiServer) -> None:
    assert service_account(cluster.issue("vision:pipeline")) == "system:serviceaccount:vision:pipeline"


def test_a_token_that_the_api_server_rejects_is_refused(cluster: ApiServer) -> None:
    deleted = cluster.issue("vision:pipeline")
    cluster.gone.add(deleted)
    for token in (deleted, cluster.issue("vision:pipeline", life=-60), cluster.issue("vision:pipeline", API)):
        with pytest.raises(TokenRefusedError, match="the cluster rejects this token for mlflow"):
            service_account(token)


def test_an_api_server_that_knows_no_audiences_is_not_believed(cluster: ApiServer) -> None:
    cluster.knows_audiences = False
    with pytest.raises(TokenRefusedError, match="not issued for the audience mlflow"):
        service_account(cluster.issue("vision:pipeline", API))


def test_an_account_of_the_cluster_that_is_no_service_account_is_refused(cluster: ApiServer) -> None:
    with pytest.raises(TokenRefusedError, match="is not a service account"):
        service_account(cluster.issue("Vision:pipeline"))


def test_an_api_server_that_fails_is_no_refusal(cluster: ApiServer) -> None:
    cluster.status = 500
    with pytest.raises(UnderstudyError, match="with 500") as raised:
        service_account(cluster.issue("vision:pipeline"))
    assert not isinstance(raised.value, TokenRefusedError)


def test_outside_of_a_cluster_no_pods_token_is_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(TokenRefusedError, match="this server is not in a cluster"):
        service_account("a.b.c")
