"""The verdict of a pipeline run that ran elsewhere, stored in MLflow."""

from dataclasses import dataclass

from understudy.errors import UnderstudyError
from understudy.registry.client import server_at
from understudy.registry.names import PARENT, REGISTERED_BY, REJECTED_BY, RUN, STEP, VERDICT
from understudy.registry.recorder import Recorder, close
from understudy.registry.register import Registration
from understudy.registry.server import public_uri
from understudy.store import Run


@dataclass(frozen=True)
class KeptVerdict:
    """A run's verdict, from MLflow."""

    word: str
    """approved or rejected."""
    rules: str = ""
    """The rules that a rejected student did not meet."""


def keep_verdict(run: Run, uri: str, experiment: str, registration: Registration) -> None:
    """Create a record in MLflow, with the verdict, for a run whose registration an earlier run made.

    Raises:
        UnderstudyError: the server cannot be used.
    """
    server = server_at(uri)
    parent = Recorder(run, uri, experiment, {}).open(server)
    word = "approved" if registration.version else "rejected"
    rules = (server.run_tags(registration.parent_run_id) or {}).get(REJECTED_BY)
    tags = {VERDICT: word, REGISTERED_BY: registration.parent_run_id, **({REJECTED_BY: rules} if rules else {})}
    server.set_tags(parent, tags)
    server.end(parent, "FINISHED")
    close(run)


def verdict_of(uri: str, run: str) -> KeptVerdict:
    """A run's verdict: approved or rejected, and by which rules.

    Args:
        uri: the tracking server.
        run: the pipeline run's id.

    Raises:
        UnderstudyError: the server does not respond, or has no verdict of this run.
    """
    server = server_at(uri)
    runs = server.runs(server.experiments(), f"tags.`{RUN}` = '{run}' and tags.`{STEP}` = '{PARENT}'")
    tags = server.run_tags(runs[0]) if runs else None
    if not tags or VERDICT not in tags:
        raise UnderstudyError(f"{public_uri(uri)}: MLflow knows no verdict of the run {run}")
    return KeptVerdict(tags[VERDICT], tags.get(REJECTED_BY, ""))
