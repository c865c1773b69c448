"""The verdict of a run that ran elsewhere."""

from collections.abc import Callable

import pytest

from tests.registry.submitted import Pipeline, Server, connect
from understudy.errors import UnderstudyError
from understudy.registry.names import REGISTERED_BY, REJECTED_BY
from understudy.registry.register import Registration
from understudy.registry.verdict import KeptVerdict, keep_verdict, verdict_of


@pytest.mark.parametrize(("version", "verdict"), [("3", "approved"), (None, "rejected")])
def test_a_run_whose_registration_was_there_before_has_a_verdict_too(
    make_pipeline: Callable[..., Pipeline], server: Server, version: str | None, verdict: str
) -> None:
    pipeline = make_pipeline(server.uri)
    with pytest.raises(UnderstudyError, match=f"knows no verdict of the run {pipeline.run.id}"):
        verdict_of(server.uri, pipeline.run.id)
    experiment = pipeline.recipe.experiment
    client, rules = connect(server.uri), "" if version else "size, latency"
    earlier = client.create_run("0", tags={REJECTED_BY: rules} if rules else {})
    keep_verdict(pipeline.run, server.uri, experiment, Registration(earlier.info.run_id, version, "digits", "page"))
    assert verdict_of(server.uri, pipeline.run.id) == KeptVerdict(verdict, rules)
    mlflow_experiment = client.get_experiment_by_name(experiment)
    assert mlflow_experiment is not None
    [run] = client.search_runs([mlflow_experiment.experiment_id], f"tags.`understudy.run` = '{pipeline.run.id}'")
    assert (run.info.status, run.data.tags[REGISTERED_BY]) == ("FINISHED", earlier.info.run_id)
