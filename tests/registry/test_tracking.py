"""Calls to a server have the same results over REST and through MLflow's client."""

import pytest

from tests.registry.submitted import Server, connect
from understudy.errors import UnderstudyError
from understudy.registry import tracking
from understudy.registry.client import server_at
from understudy.registry.tracking import PARAMS, TrackingServer, Value, Version


@pytest.fixture(params=["local", "server"])
def uri(request: pytest.FixtureRequest) -> str:
    backend = request.getfixturevalue(request.param)
    return backend.uri if isinstance(backend, Server) else str(backend)


def test_a_run_is_made_found_and_ended(uri: str) -> None:
    tracking: TrackingServer = server_at(uri)
    tracking.check()
    experiment = tracking.experiment("runs")
    assert tracking.experiment("runs") == experiment
    assert experiment in tracking.experiments()
    run = tracking.make_run(experiment, 1000, {"a": "1"}, "run")
    assert tracking.experiment_of(run) == experiment
    later = tracking.make_run(experiment, 2000, {"a": "1"}, "later")
    assert tracking.runs(tracking.experiments(), "tags.a = '1'") == [later, run]
    assert not tracking.has_metrics(run)
    tracking.log(run, [Value("loss", 1.0, 1, 0)])
    assert (tracking.has_metrics(run), tracking.has_metrics(later)) == (True, False)
    tracking.end(later, "FINISHED")
    tracking.set_tags(run, {"b": "2"})
    assert {"a": "1", "b": "2"}.items() <= (tracking.run_tags(run) or {}).items()
    tracking.end(run, "KILLED")
    assert tracking.runs([experiment], "attributes.status = 'RUNNING'") == []
    tracking.reopen(run)
    assert tracking.runs([experiment], "attributes.status = 'RUNNING'") == [run]


def test_experiments_of_all_pages_are_listed(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    server: TrackingServer = server_at(uri)
    created = {server.experiment(f"page-{number}") for number in range(5)}
    monkeypatch.setattr(tracking, "LISTED", 2)
    assert created <= set(server.experiments())


def test_an_experiment_has_the_kind_of_model_training(uri: str) -> None:
    experiment = server_at(uri).experiment("kind")
    assert connect(uri).get_experiment(experiment).tags["mlflow.experimentKind"] == "custom_model_development"


def test_a_run_that_is_not_there_has_no_experiment(uri: str) -> None:
    with pytest.raises(UnderstudyError, match="MLflow cannot be used"):
        server_at(uri).experiment_of("0" * 32)


def test_curves_and_parameters_are_kept_whole(uri: str) -> None:
    tracking = server_at(uri)
    run = tracking.make_run(tracking.experiment("curves"), 1000, {}, "run")
    tracking.log(run, [Value("loss", 1.0 / step, 1000, step) for step in (1, 2, 3)])
    assert tracking.steps(run) == {1, 2, 3}
    params = {f"p{number}": "v" for number in range(PARAMS + 1)}
    tracking.set_params(run, params)
    assert connect(uri).get_run(run).data.params == params


def test_missing_objects_are_none_and_no_error(uri: str) -> None:
    tracking = server_at(uri)
    assert tracking.run_tags("0" * 32) is None
    assert tracking.version_tags("unheard", "1") is None
    assert tracking.aliases("unheard") == {}
    assert tracking.versions("name = 'unheard'") == []


def test_versions_are_found_with_their_tags_and_aliases(uri: str) -> None:
    client, tracking = connect(uri), server_at(uri)
    client.create_registered_model("one")
    created = client.create_model_version("one", "s3://nowhere/one", tags={"a": "1"})
    tracking.set_alias("one", "challenger", "1")
    expected = Version("one", "1", {"a": "1"}, "", created.creation_timestamp / 1000)
    assert tracking.versions("name = 'one'") == [expected]
    assert tracking.versions() == [expected]
    assert tracking.aliases("one") == {"challenger": "1"}
    assert tracking.version_tags("one", "1") == {"a": "1"}
