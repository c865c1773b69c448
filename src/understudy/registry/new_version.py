"""A candidate's version in the registry: its files are uploaded, downloaded again and scored before it is created."""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from understudy.recipe import Recipe
from understudy.registry import evidence, pyfunc
from understudy.registry.model_upload import send_model
from understudy.registry.names import CANDIDATE, DIGEST, RUN, SCORED, SERVED_AS, VERDICT
from understudy.registry.over_mlflow import OverMlflow
from understudy.registry.server import run_page
from understudy.registry.submission import Submission
from understudy.store import Run

SERVED = "served.json"
Prove = Callable[[Path], evidence.Figures]
"""Scores test examples through a version, whose files are in a folder, and returns the figures by loading method.

Raises UnderstudyError if they differ from the measured ones."""


def find_or_create_version(
    server: OverMlflow, run: Run, parent: str, submission: Submission, uri: str, prove: Prove | None
) -> str:
    """The number of the candidate's version with these serving settings, which an earlier run may have created.

    Args:
        server: the tracking server.
        run: the pipeline run.
        parent: the id of its run in MLflow.
        submission: the content to send.
        uri: the tracking server's address.
        prove: called with a new version's files, as downloaded, before it is created; None if no process can run it.
    """
    name = submission.recipe.model_name
    query = f"name = '{name}' and tags.`{DIGEST}` = '{submission.digest}'"
    served = _served_as(submission.recipe)
    numbers = [version.number for version in server.versions(query) if version.tags.get(SERVED_AS) == served]
    return max(numbers, key=int) if numbers else _create_version(server, run, parent, submission, uri, prove)


def _served_as(recipe: Recipe) -> str:
    """The serving settings as a tag of the version."""
    return f"{recipe.evaluate.precision}, stride {recipe.evaluate.stride or 'of a whole window'}"


def _create_version(
    server: OverMlflow, run: Run, parent: str, submission: Submission, uri: str, prove: Prove | None
) -> str:
    from mlflow.exceptions import MlflowException

    client, name, measured = server.client, submission.recipe.model_name, submission.measured
    model_id, figures = _logged_model(server, run, parent, submission, prove)
    try:
        client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    description = evidence.description(measured, submission.judged, run_page(uri, server.experiment_of(parent), parent))
    tags = {
        **submission.lineage_tags,
        DIGEST: submission.digest,
        RUN: run.id,
        VERDICT: submission.verdict_tag,
        CANDIDATE: submission.recipe.candidate,
        SCORED: evidence.served(figures),
        SERVED_AS: _served_as(submission.recipe),
        **evidence.key_figures(measured),
        **evidence.recovered_figures(submission.judged),
    }
    created = client.create_model_version(
        name, f"models:/{model_id}", run_id=parent, tags=tags, description=description, model_id=model_id
    )
    return str(created.version)


def _logged_model(
    server: OverMlflow, run: Run, parent: str, submission: Submission, prove: Prove | None
) -> tuple[str, evidence.Figures]:
    """Write, upload and verify the version's files, after deleting the remains of an interrupted attempt."""
    from mlflow.entities import LoggedModelOutput
    from mlflow.models import Model

    client = server.client
    parent_run = client.get_run(parent)
    for output in parent_run.outputs.model_outputs if parent_run.outputs else ():
        _discard(server, output.model_id)
    logged_model = client.create_logged_model(
        parent_run.info.experiment_id,
        submission.recipe.candidate,
        parent,
        {DIGEST: submission.digest},
        model_type=submission.recipe.task,
    )
    client.log_outputs(parent, [LoggedModelOutput(logged_model.model_id, step=0)])
    mlmodel = Model(artifact_path=logged_model.artifact_location, run_id=parent, model_id=logged_model.model_id)
    staged = Path(tempfile.mkdtemp(prefix="register-", dir=run.folder))
    try:
        pyfunc.write(staged / "version", submission.model, mlmodel, submission.recipe.evaluate)
        client.log_model_artifacts(logged_model.model_id, str(staged / "version"))
        send_model(client, str(logged_model.model_id), submission.model, submission.digest)
        shutil.rmtree(staged / "version")
        (staged / "downloaded").mkdir()
        figures: evidence.Figures = evidence.UNSCORED
        if prove:
            figures = prove(server.download(f"models:/{logged_model.model_id}", staged / "downloaded"))
    finally:
        shutil.rmtree(staged)
    client.log_dict(parent, dict(figures), SERVED)
    client.finalize_logged_model(logged_model.model_id, "READY")
    return str(logged_model.model_id), figures


def _discard(server: OverMlflow, model_id: str) -> None:
    """Delete the remains of an interrupted upload.

    A server's garbage collector removes its files. Files beside a local database are removed here: on a full disk, each
    attempt would leave more.
    """
    from mlflow.entities import LoggedModelStatus
    from mlflow.exceptions import MlflowException

    try:
        logged_model = server.client.get_logged_model(model_id)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return  # an earlier attempt has deleted it
    server.client.delete_logged_model(model_id)
    # Local databases only: a server reports where its files are, and must not choose what is removed here.
    local_artifacts, location = server.artifact_location, logged_model.artifact_location
    folder = Path(url2pathname(urlsplit(location).path)).parent
    is_local = local_artifacts and location.startswith(f"{local_artifacts}/") and folder.name == model_id
    if is_local and logged_model.status != LoggedModelStatus.READY:
        shutil.rmtree(folder, ignore_errors=True)
