"""One server with accounts for all tests of what runs inside it."""

from collections.abc import Iterator

import pytest

from tests.registry.server_app.accounts import ADMIN, COMMAND, READER, REVIEWER, SETTINGS, ask, done
from tests.registry.submitted import Server, start_server


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server with an admin, the pipeline's account, a reviewer, and one who may only read."""
    server = start_server(tmp_path_factory.mktemp("guarded"), COMMAND, **SETTINGS)
    for account in (REVIEWER, READER):
        done(ask(server, ADMIN, "POST", "users/create", username=account, password=f"password-of-{account}"))
    yield server
    server.stop()
