"""One server with accounts for all tests of the code inside it, in a cluster and with an issuer of ID tokens."""

import json
from collections.abc import Iterator

import pytest

from tests.registry.conftest import databases_without_sync as databases_without_sync
from tests.registry.conftest import environment as environment
from tests.registry.conftest import make_pipeline as make_pipeline
from tests.registry.submitted import Server, start_server
from tests.server.accounts import (
    COMMAND,
    READER,
    REVIEWER,
    SETTINGS,
    STRANGER,
    TEAMS,
    TRAINER,
    make_accounts,
)
from tests.server.issuer import AUDIENCE, Issuer, issuer
from tests.unit.kube.api_server import ApiServer, api_server


@pytest.fixture(scope="session")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """The API server of the cluster that the server is in."""
    with api_server(tmp_path_factory.mktemp("kubernetes")) as running:
        yield running


@pytest.fixture(scope="session")
def login() -> Iterator[Issuer]:
    """Where people sign in."""
    with issuer() as running:
        yield running


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory, kubernetes: ApiServer, login: Issuer) -> Iterator[Server]:
    """The server with an admin, a team's pipeline, reviewer and reader, and an account of another team."""
    accounts = {"teams": TEAMS, "people": {"issuer": login.address, "audience": AUDIENCE}}
    settings = {**SETTINGS, **kubernetes.environment, "UNDERSTUDY_ACCOUNTS": json.dumps(accounts)}
    server = start_server(tmp_path_factory.mktemp("guarded"), COMMAND, **settings)
    make_accounts(server, TRAINER, REVIEWER, READER, STRANGER)
    yield server
    server.stop()
