"""The pages of `understudy ui`: who else is on the machine sees nothing, changes nothing, and has no commands run."""

import base64
import importlib.util
import re
from collections.abc import Iterator
from http.client import HTTPConnection
from importlib.metadata import entry_points
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest

from tests.registry.submitted import Server, start_server
from understudy.cli.ui import APP
from understudy.registry.latest import latest_page
from understudy.registry.server import UI_TOKEN

TOKEN = "a-token-of-this-test"
SPEC = importlib.util.find_spec("mlflow")
assert SPEC is not None
SCRIPTS = Path(str(SPEC.origin)).parent / "server" / "js" / "build" / "static" / "js"
SEARCH = "/api/2.0/mlflow/experiments/search?max_results=1"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    command = ("mlflow", "server", "--app-name", APP)
    server = start_server(tmp_path_factory.mktemp("pages"), command, **{UI_TOKEN: TOKEN})
    yield server
    server.stop()


def ask(server: Server, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str]]:
    connection = HTTPConnection(urlsplit(server.uri).netloc, timeout=30)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}
    finally:
        connection.close()


def test_mlflow_finds_the_app_by_its_name() -> None:
    entry_point_names = {entry.value for entry in entry_points(group="mlflow.app", name=APP)}
    assert entry_point_names == {"understudy.registry.ui:create_app"}


def basic(password: str) -> str:
    return "Basic " + base64.b64encode(f"understudy:{password}".encode()).decode()


def test_the_address_with_the_token_opens_the_pages_and_leaves_a_cookie(pages: Server) -> None:
    status, headers = ask(pages, f"/?token={TOKEN}")
    assert (status, headers["referrer-policy"], headers["cache-control"]) == (200, "no-referrer", "no-store")
    cookie = headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    for path in ("/", SEARCH):
        assert ask(pages, path, Cookie=cookie.partition(";")[0])[0] == 200


def test_the_installed_mlflow_knows_the_setting_that_keeps_its_assistant_closed(pages: Server) -> None:
    with urlopen(f"{pages.uri}/?token={TOKEN}", timeout=30) as answer:
        [name] = re.findall(r'setItem\("(.+)_v1"', answer.read().decode())
    assert any(f'key:"{name}",version:1' in file.read_text() for file in SCRIPTS.glob("main*.js"))


def test_the_page_sets_that_no_usage_data_is_collected_in_a_form_that_it_knows(pages: Server) -> None:
    """MLflow's own page says "MLflow collects usage data" to whoever comes first."""
    page = page_of(pages.uri, TOKEN)
    assert page.index("localStorage") < page.index("<script defer")
    page_settings = dict(re.findall(r'setItem\("([\w.]+)_v1","(\w+)"\)', page))
    assert page_settings == {
        "mlflow.settings.telemetry.enabled": "false",
        "mlflow.telemetry.info.alert.dismissed": "true",
    }
    scripts = "".join(file.read_text() for file in SCRIPTS.glob("main*.js"))
    named = re.search(r'const (\w+)=1,\w+="(mlflow.settings[\w.]+)",\w+="(mlflow.telemetry[\w.]+)",(\w+)=1,', scripts)
    assert named
    assert set(named.groups()[1:3]) == page_settings.keys()


def page_of(uri: str, password: str) -> str:
    request = Request(f"{uri}/", headers={"Authorization": basic(password)})
    with urlopen(request, timeout=30) as answer:
        content: bytes = answer.read()
        assert int(answer.headers["content-length"]) == len(content)
        return content.decode()


def test_programs_send_the_token_as_a_password(pages: Server) -> None:
    assert ask(pages, SEARCH, Authorization=basic(TOKEN))[0] == 200
    assert latest_page(pages.uri.replace("://", f"://understudy:{TOKEN}@")) is None


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Cookie": "understudy-ui=another"},
        {"Cookie": "understudy-ui="},
        {"Cookie": "understudy-ui=\\"},
        {"Authorization": basic("another")},
        {"Authorization": basic("")},
        {"Authorization": "Basic \xe9"},
        {"Authorization": f"Bearer {TOKEN}"},
    ],
)
@pytest.mark.parametrize("path", ["/", SEARCH, "/?token=another", f"/version?token={TOKEN}", f"//?token={TOKEN}"])
def test_without_the_token_there_is_nothing(pages: Server, path: str, headers: dict[str, str]) -> None:
    assert ask(pages, path, **headers)[0] == 403
    assert ask(pages, path, "POST", **headers)[0] == 403


def test_whether_the_server_is_there_may_be_asked(pages: Server) -> None:
    assert ask(pages, "/health")[0] == 200


@pytest.mark.parametrize("path", ["/ajax-api/3.0/mlflow/assistant/config", "/ajax-api/3.0/jobs/"])
def test_commands_and_jobs_are_not_there_with_it_either(pages: Server, path: str) -> None:
    for method in ("GET", "PUT", "POST"):
        assert ask(pages, path, method, Authorization=basic(TOKEN))[0] == 404
