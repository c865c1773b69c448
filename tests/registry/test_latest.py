import itertools
import json
import re
from urllib.request import urlopen

import pytest

from tests.registry.submitted import Server
from understudy.registry.client import server_at
from understudy.registry.latest import latest_page
from understudy.registry.names import PARENT, STEP
from understudy.registry.tracking import Value


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


NOTHING, NUMBERS = False, True
CLOCK = itertools.count(10_000)  # the runs of all cases are in one database


@pytest.mark.parametrize(
    ("runs", "chosen"),
    [
        ([("FINISHED", NUMBERS), ("FINISHED", NOTHING)], 0),
        ([("FINISHED", NUMBERS), ("FINISHED", NOTHING), ("FINISHED", NOTHING)], 0),
        ([("FINISHED", NUMBERS), ("FINISHED", NUMBERS), ("FINISHED", NOTHING)], 1),
        ([("FINISHED", NUMBERS), ("FAILED", NOTHING), ("FINISHED", NOTHING)], 1),
        ([("FINISHED", NUMBERS), ("FINISHED", NOTHING), ("RUNNING", NOTHING)], 2),
        ([("FINISHED", NUMBERS), ("KILLED", NOTHING)], 1),
    ],
)
def test_a_run_that_reused_everything_is_not_the_one_that_is_opened(
    local: str, runs: list[tuple[str, bool]], chosen: int
) -> None:
    asked = server_at(local)
    place = asked.experiment("reused")
    made = []
    for number, (status, has_numbers) in enumerate(runs):
        made.append(asked.make_run(place, next(CLOCK), {STEP: PARENT}, f"run {number}"))
        if has_numbers:
            asked.log(made[-1], [Value("student/accuracy", 0.9, 1, 0)])
        if status != "RUNNING":
            asked.end(made[-1], status)
    assert latest_page(local) == f"runs:/{made[chosen]}"


def test_mlflows_pages_know_such_an_address(server: Server) -> None:
    """What stands behind the # is read by the page's own script."""
    with urlopen(f"{server.uri}/") as answer:
        (script,) = re.findall(r"static-files/static/js/main\.\w+\.js", answer.read().decode())
    with urlopen(f"{server.uri}/{script}") as answer:
        code = answer.read().decode()
    for word in ('"/experiments/:experimentId/runs/:runUuid"', '"workflowType"', '"machine_learning"'):
        assert word in code, word
