"""The pages of `understudy ui`: who else is on the machine cannot have commands run."""

import json
from collections.abc import Iterator
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.registry.submitted import Server, start_server
from understudy.cli.ui import APP


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = start_server(tmp_path_factory.mktemp("pages"), ("mlflow", "server", "--app-name", APP))
    yield server
    server.stop()


def test_pages_and_runs_are_there(pages: Server) -> None:
    for path in ("/", "/api/2.0/mlflow/experiments/search?max_results=1"):
        with urlopen(pages.uri + path, timeout=30) as answer:
            assert answer.status == 200


@pytest.mark.parametrize("path", ["/ajax-api/3.0/mlflow/assistant/config", "/ajax-api/3.0/jobs/"])
def test_commands_and_jobs_are_not(pages: Server, path: str) -> None:
    request = Request(pages.uri + path, method="GET" if "config" in path else "POST", data=None)
    with pytest.raises(HTTPError) as refused:
        urlopen(request, timeout=30)
    with refused.value as answer:
        assert (answer.code, json.load(answer)["error_code"]) == (404, "ENDPOINT_NOT_FOUND")
