import json
import re
from urllib.request import urlopen

from tests.registry.submitted import Server
from understudy.registry.client import server_at
from understudy.registry.latest import latest_page
from understudy.registry.names import PARENT, STEP


def test_the_latest_runs_page_is_one_of_the_server(server: Server) -> None:
    asked = server_at(server.uri)
    assert latest_page(server.uri) is None
    place = asked.experiment("pages")
    asked.make_run(place, 1000, {STEP: PARENT}, "first")
    asked.make_run(place, 3000, {STEP: "teacher"}, "a training's own")
    latest = asked.make_run(place, 2000, {STEP: PARENT}, "second")
    found = latest_page(server.uri)
    assert found == f"{server.uri}/#/experiments/{place}/runs/{latest}?workflowType=machine_learning"
    with urlopen(f"{server.uri}/api/2.0/mlflow/runs/get?run_id={latest}") as answer:
        assert json.load(answer)["run"]["info"]["experiment_id"] == place


def test_mlflows_pages_know_such_an_address(server: Server) -> None:
    """What stands behind the # is read by the page's own script."""
    with urlopen(f"{server.uri}/") as answer:
        (script,) = re.findall(r"static-files/static/js/main\.\w+\.js", answer.read().decode())
    with urlopen(f"{server.uri}/{script}") as answer:
        code = answer.read().decode()
    for word in ('"/experiments/:experimentId/runs/:runUuid"', '"workflowType"', '"machine_learning"'):
        assert word in code, word
