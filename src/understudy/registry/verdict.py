"""What became of a pipeline run that ran elsewhere: MLflow keeps its verdict."""

from understudy.errors import UnderstudyError
from understudy.registry.recorder import PARENT, RUN, STEP
from understudy.registry.register import VERDICT
from understudy.registry.server import connect, public_uri, translated


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
