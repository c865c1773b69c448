"""The last step: send the run's evidence to MLflow and register a student that passed the gate as a version to review.

Data that an earlier attempt of the same run has sent is not sent twice.
"""

from dataclasses import dataclass

from understudy.errors import disk_errors
from understudy.recipe import Candidate
from understudy.recipe.roles import STUDENT
from understudy.registry import evidence
from understudy.registry.client import mlflow_at, server_at
from understudy.registry.logged_runs import log_parent, log_steps
from understudy.registry.names import CHALLENGER, CHAMPION, DIGEST, NOTE, SCORED, VERDICT
from understudy.registry.new_version import Prove, find_or_create_version
from understudy.registry.over_mlflow import OverMlflow
from understudy.registry.recorder import Recorder, close
from understudy.registry.server import run_page, translated
from understudy.registry.submission import Submission
from understudy.store import Run


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
        recorder = Recorder(run, uri, submission.recipe.experiment, submission.lineage_tags)
        parent = recorder.open(server)
        log_steps(server, recorder, submission)
        log_parent(server, parent, submission)
        version, stays = None, ""
        if submission.judged["approved"]:
            version = find_or_create_version(server, run, parent, submission, uri, prove)
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
