"""A pod in a cluster whose API server issues tokens."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.kube.api_server import ApiServer, api_server


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    """The API server of the pod that this process is."""
    with api_server(tmp_path) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server
