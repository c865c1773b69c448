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
    tracking = server_at(server.uri)
    assert latest_page(server.uri) is None
    experiment = tracking.experiment("pages")
    tracking.make_run(experiment, 1000, {STEP: PARENT}, "first")
    tracking.make_run(experiment, 3000, {STEP: "teacher"}, "a training's own")
    latest = tracking.make_run(experiment, 2000, {STEP: PARENT}, "second")
    page = latest_page(server.uri)
    assert page == f"{server.uri}/#/experiments/{experiment}/runs/{latest}?workflowType=machine_learning"
    with urlopen(f"{server.uri}/api/2.0/mlflow/runs/get?run_id={latest}") as answer:
        assert json.load(answer)["run"]["info"]["experiment_id"] == experiment


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
    tracking = server_at(local)
    experiment = tracking.experiment("reused")
    run_ids = []
    for number, (status, has_numbers) in enumerate(runs):
        run_ids.append(tracking.make_run(experiment, next(CLOCK), {STEP: PARENT}, f"run {number}"))
        if has_numbers:
            tracking.log(run_ids[-1], [Value("student/accuracy", 0.9, 1, 0)])
        if status != "RUNNING":
            tracking.end(run_ids[-1], status)
    assert latest_page(local) == f"runs:/{run_ids[chosen]}"


def test_mlflows_pages_know_such_an_address(server: Server) -> None:
    """The page's own script reads the part behind the #."""
    with urlopen(f"{server.uri}/") as answer:
        (script,) = re.findall(r"static-files/static/js/main\.\w+\.js", answer.read().decode())
    with urlopen(f"{server.uri}/{script}") as answer:
        code = answer.read().decode()
    for word in ('"/experiments/:experimentId/runs/:runUuid"', '"workflowType"', '"machine_learning"'):
        assert word in code, word
