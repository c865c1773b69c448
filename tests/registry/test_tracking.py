"""What is asked of a server means the same over REST and of MLflow's client."""

import pytest

from tests.registry.submitted import Server, connect
from understudy.errors import UnderstudyError
from understudy.registry import tracking
from understudy.registry.client import server_at
from understudy.registry.tracking import PARAMS, TrackingServer, Value, Version


@pytest.fixture(params=["local", "server"])
def uri(request: pytest.FixtureRequest) -> str:
    found = request.getfixturevalue(request.param)
    return found.uri if isinstance(found, Server) else str(found)


def test_a_run_is_made_found_and_ended(uri: str) -> None:
    asked: TrackingServer = server_at(uri)
    asked.check()
    place = asked.experiment("runs")
    assert asked.experiment("runs") == place
    assert place in asked.experiments()
    made = asked.make_run(place, 1000, {"a": "1"}, "run")
    assert asked.experiment_of(made) == place
    later = asked.make_run(place, 2000, {"a": "1"}, "later")
    assert asked.runs(asked.experiments(), "tags.a = '1'") == [later, made]
    assert not asked.has_metrics(made)
    asked.log(made, [Value("loss", 1.0, 1, 0)])
    assert (asked.has_metrics(made), asked.has_metrics(later)) == (True, False)
    asked.end(later, "FINISHED")
    asked.set_tags(made, {"b": "2"})
    assert {"a": "1", "b": "2"}.items() <= (asked.run_tags(made) or {}).items()
    asked.end(made, "KILLED")
    assert asked.runs([place], "attributes.status = 'RUNNING'") == []
    asked.reopen(made)
    assert asked.runs([place], "attributes.status = 'RUNNING'") == [made]


def test_experiments_of_all_pages_are_listed(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    server: TrackingServer = server_at(uri)
    made = {server.experiment(f"page-{number}") for number in range(5)}
    monkeypatch.setattr(tracking, "LISTED", 2)
    assert made <= set(server.experiments())


def test_an_experiment_says_that_models_are_trained_in_it(uri: str) -> None:
    place = server_at(uri).experiment("kind")
    assert connect(uri).get_experiment(place).tags["mlflow.experimentKind"] == "custom_model_development"


def test_a_run_that_is_not_there_has_no_experiment(uri: str) -> None:
    with pytest.raises(UnderstudyError, match="MLflow cannot be used"):
        server_at(uri).experiment_of("0" * 32)


def test_curves_and_parameters_are_kept_whole(uri: str) -> None:
    asked = server_at(uri)
    made = asked.make_run(asked.experiment("curves"), 1000, {}, "run")
    asked.log(made, [Value("loss", 1.0 / step, 1000, step) for step in (1, 2, 3)])
    assert asked.steps(made) == {1, 2, 3}
    params = {f"p{number}": "v" for number in range(PARAMS + 1)}
    asked.set_params(made, params)
    assert connect(uri).get_run(made).data.params == params


def test_what_is_not_there_is_none_and_no_error(uri: str) -> None:
    asked = server_at(uri)
    assert asked.run_tags("0" * 32) is None
    assert asked.version_tags("unheard", "1") is None
    assert asked.aliases("unheard") == {}
    assert asked.versions("name = 'unheard'") == []


def test_versions_are_found_with_their_tags_and_aliases(uri: str) -> None:
    client, asked = connect(uri), server_at(uri)
    client.create_registered_model("one")
    made = client.create_model_version("one", "s3://nowhere/one", tags={"a": "1"})
    asked.set_alias("one", "challenger", "1")
    known = Version("one", "1", {"a": "1"}, "", made.creation_timestamp / 1000)
    assert asked.versions("name = 'one'") == [known]
    assert asked.versions() == [known]
    assert asked.aliases("one") == {"challenger": "1"}
    assert asked.version_tags("one", "1") == {"a": "1"}
