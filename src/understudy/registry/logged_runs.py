"""A pipeline run's evidence in MLflow: nested runs for each trained model and the evaluation, and their parent run."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from understudy.evaluate.benchmark_scores import CONTENTS, figures
from understudy.recipe import Recipe
from understudy.recipe.file import completed
from understudy.recipe.learners import paths_of
from understudy.recipe.roles import CONTROL, learner_of
from understudy.recipe.yaml import dump
from understudy.registry import evidence
from understudy.registry.curves import points_of, send, unreported
from understudy.registry.dataset import dataset
from understudy.registry.names import CANDIDATE, DIGEST, REJECTED_BY, VERDICT
from understudy.registry.over_mlflow import OverMlflow
from understudy.registry.params import log_params
from understudy.registry.profiles import send_profile
from understudy.registry.recorder import Recorder
from understudy.registry.submission import Submission
from understudy.registry.tracking import Value
from understudy.store.files import read_json

if TYPE_CHECKING:
    from mlflow.entities import Dataset


def log_steps(server: OverMlflow, recorder: Recorder, submission: Submission) -> None:
    """Log the nested runs: parameters, complete curves, and final measures."""
    measured, recipe, benchmarked = submission.measured, submission.recipe, submission.benchmarked
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
        values = evidence.metrics(measured["models"][role])
        values |= figures(benchmarked["models"][role]) if benchmarked else {}
        _log_figures(server, run_id, values, submission, {DIGEST: measured["models"][role]["digest"]})
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


def log_parent(server: OverMlflow, parent: str, submission: Submission) -> None:
    """Log the parent run: all measures, the verdict, the report and the lineage."""
    tags = {VERDICT: submission.verdict_tag, DIGEST: submission.digest, CANDIDATE: submission.recipe.candidate}
    tags |= submission.lineage_tags
    failed = [rule["rule"] for rule in submission.judged["rules"] if not rule["passed"]]
    tags |= {REJECTED_BY: ", ".join(failed)} if failed else {}
    server.link_dataset(parent, _dataset(submission), "training")
    values = evidence.all_metrics(submission.measured) | evidence.recovered_share(submission.judged)
    if benchmarked := submission.benchmarked:
        of_models = {role: figures(scores) for role, scores in benchmarked["models"].items()}
        values |= {f"{role}.{name}": value for role, scores in of_models.items() for name, value in scores.items()}
    _log_figures(server, parent, values, submission, tags)
    client = server.client
    if submission.benchmarks:
        client.log_artifact(parent, str(submission.benchmarks / CONTENTS))
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
    # With the time of the measurement: MLflow stores a repeated value with the same timestamp only once.
    milliseconds = int(1000 * (submission.measures / "measures.json").stat().st_mtime)
    server.log(run_id, [Value(name, value, milliseconds, 0) for name, value in figures.items()])
    server.set_tags(run_id, tags)
