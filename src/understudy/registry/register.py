"""The last step: the run's evidence goes to MLflow, and a student that passed the gate becomes a version for review.

What an earlier attempt of the same run has sent already is found there and not sent twice.
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

STEPS = {"teacher": "teacher", "student": "distill", "control": "control"}
SERVED = "served.json"
Prove = Callable[[Path], evidence.Figures]
"""Scores test examples through a version, whose files are in a folder, and returns the figures by way of loading.

Raises UnderstudyError where they are not those that were measured."""


@dataclass(frozen=True)
class Registration:
    """Where a candidate ended up. `version` is None for one that was rejected; `url` is the page to look at.

    `stays` says why the alias challenger was not given to the version; it is empty when it was.
    """

    parent_run_id: str
    version: str | None
    name: str
    url: str
    stays: str = ""
    candidate: Candidate = "student"


@dataclass(frozen=True)
class Submission:
    """All that is registered of a run."""

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
    examples: Path
    """The folder of the examples object."""
    lineage: Mapping[str, str]
    """Tags without their prefix: teacher, examples, records, recipe, revision, version."""

    @property
    def measured(self) -> Measures:
        """The content of measures.json."""
        found: Measures = json.loads((self.measures / "measures.json").read_text())
        return found

    @property
    def judged(self) -> Verdict:
        """The content of verdict.json."""
        found: Verdict = json.loads((self.verdict / "verdict.json").read_text())
        return found

    @property
    def verdict_tag(self) -> str:
        """The verdict in a word."""
        return "approved" if self.judged["approved"] else "rejected"


def register(run: Run, uri: str, submission: Submission, prove: Prove | None) -> Registration:
    """Send a run's evidence to MLflow, and make the student a version with the alias challenger if it was approved.

    Args:
        run: the pipeline run.
        uri: the tracking server.
        submission: what is sent.
        prove: called with the version as the registry gives it out, before it becomes one; None where no
            process can.

    Raises:
        UnderstudyError: the server cannot be used, and what it lacks is sent when the step runs again; or the student
            was changed since it was stored; or what is served is not what was measured.
        InputError: a factory model's code cannot go along with it.
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
    """Whether the server still has what was registered there: the version, or the rejected run's evidence.

    Raises:
        UnderstudyError: the server cannot be asked.
    """
    if registration.version is None:
        return (server_at(uri).run_tags(registration.parent_run_id) or {}).get(VERDICT) == "rejected"
    tags = server_at(uri).version_tags(registration.name, registration.version)
    return tags is not None and tags.get(DIGEST) == digest


def _log_steps(server: OverMlflow, recorder: Recorder, submission: Submission) -> None:
    """The nested runs: parameters, complete curves, and what was measured in the end."""
    measured, recipe = submission.measured, submission.recipe
    student = completed(recipe).student.model_dump(mode="json")
    params = {
        "teacher": recipe.teacher.model_dump(mode="json"),
        "student": {key: student[key] for key in ("model", "train", "distill")},
        "control": {key: student[key] for key in ("model", "train")},
    }
    for role, folder in submission.models.items():
        run_id = recorder.open(server, STEPS[role])
        log_params(server, run_id, params[role])
        history = folder / "history.json"
        curve = read_json(history)
        points = list(points_of(curve)) if isinstance(curve, list) else []
        if role != "teacher" or recipe.teacher.train:
            server.link_dataset(run_id, _dataset(submission), "training")
        known = server.steps(run_id)
        rest = [unreported(point) if point["step"] in known else point for point in points]
        send(server, run_id, recipe.task, rest)
        send_profile(server, run_id, recorder.run, STEPS[role])
        figures = evidence.metrics(measured["models"][role])
        _log_figures(server, run_id, figures, submission, {DIGEST: measured["models"][role]["digest"]})
        server.end(run_id, "FINISHED")
    run_id = recorder.open(server, "evaluate")
    log_params(server, run_id, {**recipe.evaluate.model_dump(mode="json"), "hardware": measured["hardware"]})
    server.link_dataset(run_id, _dataset(submission), "evaluation")
    _log_figures(server, run_id, evidence.all_metrics(measured), submission, {})
    server.end(run_id, "FINISHED")


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
    # The time at which they were measured: MLflow takes the same value at the same time only once.
    at = int(1000 * (submission.measures / "measures.json").stat().st_mtime)
    server.log(run_id, [Value(name, value, at, 0) for name, value in figures.items()])
    server.set_tags(run_id, tags)


def _version(server: OverMlflow, run: Run, parent: str, submission: Submission, uri: str, prove: Prove | None) -> str:
    """The version of this student that is served as it was measured, whichever run made it."""
    name = submission.recipe.model_name
    query = f"name = '{name}' and tags.`{DIGEST}` = '{submission.digest}'"
    served = _served_as(submission.recipe)
    made = [version.number for version in server.versions(query) if version.tags.get(SERVED_AS) == served]
    return max(made, key=int) if made else _made_version(server, run, parent, submission, uri, prove)


def _served_as(recipe: Recipe) -> str:
    return f"{recipe.evaluate.precision}, stride {recipe.evaluate.stride or 'of a whole window'}"


def _add_to_report(server: OverMlflow, parent: str, submission: Submission, version: str) -> None:
    """Let the report say what was found when the version was registered, by this run or an earlier one."""
    tags = server.version_tags(submission.recipe.model_name, version) or {}
    report = (submission.verdict / "report.html").read_text(encoding="utf-8")
    if SCORED in tags:
        server.client.log_text(parent, evidence.report_with(report, tags[SCORED]), "report.html")


def _put_up_for_review(server: OverMlflow, name: str, version: str) -> str:
    """Give a version the alias challenger, unless that would move it backwards.

    The challenger is the newest approved candidate. An old recipe that runs again finds its student registered: with
    the alias, a version would be up for review that was decided on long ago, or the champion against itself.

    Returns:
        Why it does not get the alias; nothing when it does.
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
    newest = max((made.number for made in approved), key=int, default=version)
    if int(newest) > int(version):  # a reviewer took the alias from it, or its own run is about to give it
        return f"version {newest} was approved later"
    server.client.set_registered_model_alias(name, CHALLENGER, version)
    return ""


def _made_version(
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
    made = client.create_model_version(
        name, f"models:/{model_id}", run_id=parent, tags=tags, description=text, model_id=model_id
    )
    return str(made.version)


def _discard(server: OverMlflow, model_id: str) -> None:
    """Delete what is left of an upload. A server's collector removes its files; those beside a database here go at
    once: on a full disk each attempt would leave more.
    """
    from mlflow.entities import LoggedModelStatus
    from mlflow.exceptions import MlflowException

    try:
        left = server.client.get_logged_model(model_id)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return  # an attempt before this one has deleted it
    server.client.delete_logged_model(model_id)
    # None of a server, which says where its files are, and is not to say what is removed here.
    here, folder = server.artifact_location, Path(url2pathname(urlsplit(left.artifact_location).path)).parent
    is_here = here and left.artifact_location.startswith(f"{here}/") and folder.name == model_id
    if is_here and left.status != LoggedModelStatus.READY:
        shutil.rmtree(folder, ignore_errors=True)


def _logged_model(
    server: OverMlflow, run: Run, parent: str, submission: Submission, prove: Prove | None
) -> tuple[str, evidence.Figures]:
    """Write and send the version's files, and prove them. What an attempt that was cut off has left is deleted."""
    from mlflow.entities import LoggedModelOutput
    from mlflow.models import Model

    client = server.client
    found = client.get_run(parent)
    for output in found.outputs.model_outputs if found.outputs else ():
        _discard(server, output.model_id)
    logged = client.create_logged_model(
        found.info.experiment_id,
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
