"""The last step: send the run's evidence to MLflow and register a student that passed the gate as a version to review.

Data that an earlier attempt of the same run has sent is not sent twice.
"""

import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import url2pathname

from understudy.errors import disk_errors
from understudy.evaluate.contents import Measures, Verdict
from understudy.recipe import Candidate, Recipe
from understudy.recipe.file import completed
from understudy.recipe.learners import paths_of
from understudy.recipe.roles import CONTROL, STUDENT, learner_of
from understudy.recipe.yaml import dump
from understudy.registry import evidence, pyfunc
from understudy.registry.client import mlflow_at, server_at
from understudy.registry.curves import points_of, send, unreported
from understudy.registry.dataset import dataset
from understudy.registry.model_upload import send_model
from understudy.registry.names import (
    CANDIDATE,
    CHALLENGER,
    CHAMPION,
    DIGEST,
    NOTE,
    REJECTED_BY,
    RUN,
    SCORED,
    SERVED_AS,
    VERDICT,
)
from understudy.registry.over_mlflow import OverMlflow
from understudy.registry.params import log_params
from understudy.registry.profiles import send_profile
from understudy.registry.recorder import Recorder, close
from understudy.registry.server import run_page, translated
from understudy.registry.tracking import Value
from understudy.store import Run
from understudy.store.files import read_json

if TYPE_CHECKING:
    from mlflow.entities import Dataset

SERVED = "served.json"
Prove = Callable[[Path], evidence.Figures]
"""Scores test examples through a version, whose files are in a folder, and returns the figures by loading method.

Raises UnderstudyError if they differ from the measured ones."""


@dataclass(frozen=True)
class Registration:
    """The result of a registration. `version` is None for a rejected candidate; `url` is the page of the run.

    `stays` is the reason why the version did not get the alias challenger, or empty.
    """

    parent_run_id: str
    version: str | None
    name: str
    url: str
    stays: str = ""
    candidate: Candidate = STUDENT


@dataclass(frozen=True)
class Submission:
    """The registered content of a run."""

    recipe: Recipe
    model: Path
    """The candidate's object."""
    digest: str
    """The candidate's digest."""
    measures: Path
    """The folder of the measures object."""
    verdict: Path
    """The folder of the verdict object."""
    models: Mapping[str, Path]
    """The folders of teacher, student, and perhaps control, with their history.json."""
    steps: Mapping[str, str]
    """The names of the run's steps, by the roles of their results."""
    examples: Path
    """The folder of the examples object."""
    lineage: Mapping[str, str]
    """Tags without their prefix: teacher, examples, records, recipe, revision, version."""

    @property
    def measured(self) -> Measures:
        """The content of measures.json."""
        measures: Measures = json.loads((self.measures / "measures.json").read_text())
        return measures

    @property
    def judged(self) -> Verdict:
        """The content of verdict.json."""
        verdict: Verdict = json.loads((self.verdict / "verdict.json").read_text())
        return verdict

    @property
    def verdict_tag(self) -> str:
        """The verdict as a tag: approved or rejected."""
        return "approved" if self.judged["approved"] else "rejected"


def register(run: Run, uri: str, submission: Submission, prove: Prove | None) -> Registration:
    """Send a run's evidence to MLflow, and register an approved student as a version with the alias challenger.

    Args:
        run: the pipeline run.
        uri: the tracking server.
        submission: the content to send.
        prove: called with the files as downloaded from the registry, before the version is created; None if no
            process can run it.

    Raises:
        UnderstudyError: the server cannot be used (the step sends the rest when it runs again); or the student was
            changed since it was stored; or the served model is not the measured one.
        InputError: a factory model's code cannot be included.
    """
    server = mlflow_at(uri)
    name = submission.recipe.model_name
    with translated(uri), disk_errors(run.folder):
        tags = {f"understudy.{key}": value for key, value in submission.lineage.items()}
        recorder = Recorder(run, uri, submission.recipe.experiment, tags)
        parent = recorder.open(server)
        _log_steps(server, recorder, submission)
        _log_parent(server, parent, submission)
        version, stays = None, ""
        if submission.judged["approved"]:
            version = _version(server, run, parent, submission, uri, prove)
            _add_to_report(server, parent, submission, version)
            stays = _put_up_for_review(server, name, version)
        note = evidence.note(submission.recipe, submission.measured, submission.judged, version)
        server.set_tags(parent, {NOTE: note})
        server.end(parent, "FINISHED")
        close(run)
        url = run_page(uri, server.experiment_of(parent), parent)
    return Registration(parent, version, name, url, stays, submission.recipe.candidate)


def is_registered(uri: str, registration: Registration, digest: str) -> bool:
    """Whether the server still has the registration: the version, or the rejected run's evidence.

    Raises:
        UnderstudyError: the server cannot be queried.
    """
    if registration.version is None:
        return (server_at(uri).run_tags(registration.parent_run_id) or {}).get(VERDICT) == "rejected"
    tags = server_at(uri).version_tags(registration.name, registration.version)
    return tags is not None and tags.get(DIGEST) == digest


def _log_steps(server: OverMlflow, recorder: Recorder, submission: Submission) -> None:
    """Log the nested runs: parameters, complete curves, and final measures."""
    measured, recipe = submission.measured, submission.recipe
    for role, folder in submission.models.items():
        step = submission.steps[role]
        run_id = recorder.open(server, step)
        log_params(server, run_id, _params(recipe, role))
        history = folder / "history.json"
        curve = read_json(history)
        points = list(points_of(curve)) if isinstance(curve, list) else []
        if paths_of(recipe, learner_of(role)):
            server.link_dataset(run_id, _dataset(submission), "training")
        logged_steps = server.steps(run_id)
        unlogged = [unreported(point) if point["step"] in logged_steps else point for point in points]
        send(server, run_id, recipe.task, unlogged)
        send_profile(server, run_id, recorder.run, step)
        figures = evidence.metrics(measured["models"][role])
        _log_figures(server, run_id, figures, submission, {DIGEST: measured["models"][role]["digest"]})
        server.end(run_id, "FINISHED")
    run_id = recorder.open(server, submission.steps["measures"])
    log_params(server, run_id, {**recipe.evaluate.model_dump(mode="json"), "hardware": measured["hardware"]})
    server.link_dataset(run_id, _dataset(submission), "evaluation")
    _log_figures(server, run_id, evidence.all_metrics(measured), submission, {})
    server.end(run_id, "FINISHED")


def _params(recipe: Recipe, role: str) -> Mapping[str, object]:
    """The settings of a model and its training."""
    learner = completed(recipe).learners[learner_of(role)].model_dump(mode="json")
    keys = ["model", "stages"] if learner["stages"] else ["model", "train"]
    keys += ["distill"] if role != CONTROL and learner["distill"] else []
    return {key: learner[key] for key in keys}


def _log_parent(server: OverMlflow, parent: str, submission: Submission) -> None:
    tags = {VERDICT: submission.verdict_tag, DIGEST: submission.digest, CANDIDATE: submission.recipe.candidate}
    tags |= {f"understudy.{key}": value for key, value in submission.lineage.items()}
    failed = [rule["rule"] for rule in submission.judged["rules"] if not rule["passed"]]
    tags |= {REJECTED_BY: ", ".join(failed)} if failed else {}
    server.link_dataset(parent, _dataset(submission), "training")
    figures = evidence.all_metrics(submission.measured) | evidence.recovered_share(submission.judged)
    _log_figures(server, parent, figures, submission, tags)
    client = server.client
    client.log_artifact(parent, str(submission.measures / "measures.json"))
    client.log_text(parent, dump(completed(submission.recipe).model_dump(mode="json", by_alias=True)), "recipe.yaml")
    for name in ("verdict.json", "report.html"):
        client.log_artifact(parent, str(submission.verdict / name))
    if (submission.verdict / "plots").is_dir():
        client.log_artifacts(parent, str(submission.verdict / "plots"), "plots")


def _dataset(submission: Submission) -> "Dataset":
    return dataset(submission.recipe, submission.examples, submission.lineage["examples"])


def _log_figures(
    server: OverMlflow, run_id: str, figures: dict[str, float], submission: Submission, tags: dict[str, str]
) -> None:
    # The time of the measurement: MLflow stores a repeated value with the same timestamp only once.
    at = int(1000 * (submission.measures / "measures.json").stat().st_mtime)
    server.log(run_id, [Value(name, value, at, 0) for name, value in figures.items()])
    server.set_tags(run_id, tags)


def _version(server: OverMlflow, run: Run, parent: str, submission: Submission, uri: str, prove: Prove | None) -> str:
    """The student's version with these serving settings, whichever run made it; created if it does not exist."""
    name = submission.recipe.model_name
    query = f"name = '{name}' and tags.`{DIGEST}` = '{submission.digest}'"
    served = _served_as(submission.recipe)
    numbers = [version.number for version in server.versions(query) if version.tags.get(SERVED_AS) == served]
    return max(numbers, key=int) if numbers else _create_version(server, run, parent, submission, uri, prove)


def _served_as(recipe: Recipe) -> str:
    return f"{recipe.evaluate.precision}, stride {recipe.evaluate.stride or 'of a whole window'}"


def _add_to_report(server: OverMlflow, parent: str, submission: Submission, version: str) -> None:
    """Add the scores of the version's registration, by this run or an earlier one, to the report."""
    tags = server.version_tags(submission.recipe.model_name, version) or {}
    report = (submission.verdict / "report.html").read_text(encoding="utf-8")
    if SCORED in tags:
        server.client.log_text(parent, evidence.report_with(report, tags[SCORED]), "report.html")


def _put_up_for_review(server: OverMlflow, name: str, version: str) -> str:
    """Give a version the alias challenger, unless that would move the alias backwards.

    The challenger is the newest approved candidate. When an old recipe runs again, its student is already registered.
    The alias would put a version up for review that was decided on long ago, or the champion against itself.

    Returns:
        The reason why it does not get the alias; empty if it does.
    """
    aliases = server.aliases(name)
    champion, challenger = (aliases.get(alias) for alias in (CHAMPION, CHALLENGER))
    if champion == version:
        return f"version {version} is the champion"
    if champion and int(champion) > int(version):
        return f"version {champion}, the champion, is newer"
    if challenger and int(challenger) > int(version):
        return f"version {challenger}, which has it, is newer"
    approved = server.versions(f"name = '{name}' and tags.`{VERDICT}` = 'approved'")
    newest = max((version_entry.number for version_entry in approved), key=int, default=version)
    if int(newest) > int(version):  # a reviewer removed its alias, or its run is about to set it
        return f"version {newest} was approved later"
    server.client.set_registered_model_alias(name, CHALLENGER, version)
    return ""


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
    text = evidence.description(measured, submission.judged, run_page(uri, server.experiment_of(parent), parent))
    tags = {f"understudy.{key}": value for key, value in submission.lineage.items()}
    tags |= {
        DIGEST: submission.digest,
        RUN: run.id,
        VERDICT: submission.verdict_tag,
        CANDIDATE: submission.recipe.candidate,
        SCORED: evidence.served(figures),
        SERVED_AS: _served_as(submission.recipe),
    }
    tags |= {**evidence.key_figures(measured), **evidence.recovered_figures(submission.judged)}
    created = client.create_model_version(
        name, f"models:/{model_id}", run_id=parent, tags=tags, description=text, model_id=model_id
    )
    return str(created.version)


def _discard(server: OverMlflow, model_id: str) -> None:
    """Delete the remains of an upload. A server's garbage collector removes its files. Files beside a local database
    are removed here, since on a full disk each attempt would leave more.
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
    artifacts, folder = (
        server.artifact_location,
        Path(url2pathname(urlsplit(logged_model.artifact_location).path)).parent,
    )
    is_local = artifacts and logged_model.artifact_location.startswith(f"{artifacts}/") and folder.name == model_id
    if is_local and logged_model.status != LoggedModelStatus.READY:
        shutil.rmtree(folder, ignore_errors=True)


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
    logged = client.create_logged_model(
        parent_run.info.experiment_id,
        submission.recipe.candidate,
        parent,
        {DIGEST: submission.digest},
        model_type=submission.recipe.task,
    )
    client.log_outputs(parent, [LoggedModelOutput(logged.model_id, step=0)])
    description = Model(artifact_path=logged.artifact_location, run_id=parent, model_id=logged.model_id)
    staged = Path(tempfile.mkdtemp(prefix="register-", dir=run.folder))
    try:
        pyfunc.write(staged / "version", submission.model, description, submission.recipe.evaluate)
        client.log_model_artifacts(logged.model_id, str(staged / "version"))
        send_model(client, str(logged.model_id), submission.model, submission.digest)
        shutil.rmtree(staged / "version")
        (staged / "back").mkdir()
        figures = prove(server.download(f"models:/{logged.model_id}", staged / "back")) if prove else evidence.UNSCORED
    finally:
        shutil.rmtree(staged)
    client.log_dict(parent, dict(figures), SERVED)
    client.finalize_logged_model(logged.model_id, "READY")
    return str(logged.model_id), figures
