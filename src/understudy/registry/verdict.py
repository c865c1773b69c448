"""What became of a pipeline run that ran elsewhere: MLflow keeps its verdict."""

from understudy.errors import UnderstudyError
from understudy.registry.recorder import PARENT, RUN, STEP, Recorder, close
from understudy.registry.register import VERDICT, Registration
from understudy.registry.server import connect, public_uri, translated
from understudy.registry.tracking import tracking
from understudy.store import Run

OF = "understudy.registered_by"
"""The MLflow run that has the evidence, on one whose registration was there before."""


def keep_verdict(run: Run, uri: str, experiment: str, registration: Registration) -> None:
    """Give a run a record of its own in MLflow whose registration an earlier run has made, with the verdict.

    Raises:
        UnderstudyError: the server cannot be used.
    """
    server = tracking(uri)
    parent = Recorder(run, uri, experiment, {}).open(server)
    server.set_tag(parent, VERDICT, "approved" if registration.version else "rejected")
    server.set_tag(parent, OF, registration.parent_run_id)
    server.end(parent, "FINISHED")
    close(run)


def verdict_of(uri: str, run: str) -> str:
    """Approved or rejected.

    Args:
        uri: the tracking server.
        run: the pipeline run's id.

    Raises:
        UnderstudyError: the server does not answer, or knows no verdict of this run.
    """
    client = connect(uri)
    with translated(uri):
        everywhere = [experiment.experiment_id for experiment in client.search_experiments()]
        found = client.search_runs(everywhere, f"tags.`{RUN}` = '{run}' and tags.`{STEP}` = '{PARENT}'")
    verdict = found[0].data.tags.get(VERDICT) if found else None
    if verdict is None:
        raise UnderstudyError(f"{public_uri(uri)}: MLflow knows no verdict of the run {run}")
    return str(verdict)
