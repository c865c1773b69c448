"""Retention of a promoted version: its files, their logged model and run, and the evidence become read-only.

The alias points to a version, and the version to files that their creator could replace, or delete with their run or
experiment. All files go through this server, whose accounts have no access to the bucket. So no copy is needed: from
the promotion on, the server lets only admins write there.
"""

import posixpath
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from flask import request
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import PERMISSION_DENIED
from mlflow.protos.service_pb2 import (
    CreateLoggedModel,
    DeleteExperiment,
    DeleteLoggedModel,
    DeleteLoggedModelTag,
    DeleteRun,
    DeleteTag,
    FinalizeLoggedModel,
    LogBatch,
    LogInputs,
    LogLoggedModelParamsRequest,
    LogMetric,
    LogModel,
    LogOutputs,
    LogParam,
    MlflowService,
    SetLoggedModelTags,
    SetTag,
    UpdateRun,
)
from mlflow.server import auth, handlers

from understudy_server.retention_table import Kind, needed_by
from understudy_server.retention_table import retain as retain_rows
from understudy_server.uploads import folders, in_progress, uploading

ROOT = "mlflow-artifacts:/"
Resource = tuple[Kind, str]


def _run(message: Any) -> list[Resource]:
    return [("run", str(message.run_id or getattr(message, "run_uuid", "")))]


def _metric(message: Any) -> list[Resource]:
    """A metric may also belong to a logged model, even one of another run."""
    return [*_run(message), ("logged-model", message.model_id)]


def _batch(message: Any) -> list[Resource]:
    models: set[Resource] = {("logged-model", metric.model_id) for metric in message.metrics}
    return [*_run(message), *models]


def _logged_model(_: Any) -> list[Resource]:
    return [("logged-model", str((request.view_args or {})["model_id"]))]


def _experiment(message: Any) -> list[Resource]:
    """The experiment by its canonical number: the database also matches 007 with experiment 7."""
    name = str(message.experiment_id)
    return [("experiment", str(int(name)) if name.isdecimal() else name)]


CHANGES: dict[type[object], Callable[[Any], list[Resource]]] = {
    **dict.fromkeys((DeleteRun, UpdateRun, SetTag, DeleteTag, LogParam, LogModel, LogInputs, LogOutputs), _run),
    LogMetric: _metric,
    LogBatch: _batch,
    **dict.fromkeys(
        (DeleteLoggedModel, FinalizeLoggedModel, SetLoggedModelTags, DeleteLoggedModelTag, LogLoggedModelParamsRequest),
        _logged_model,
    ),
    CreateLoggedModel: lambda message: [("run", str(message.source_run_id))],
    DeleteExperiment: _experiment,
}
"""Requests that change a run, logged model or experiment, and the resources that each of them changes."""


def retain(version: Any) -> None:
    """Retain a model version's requirements from now on."""
    description = f"version {version.version} of {version.name}, which was promoted"
    retain_rows(auth.store.engine, dict.fromkeys(requirements(version), description))


def requirements(version: Any) -> set[Resource]:
    """A model version's requirements: its files, their logged model and run, and the experiments of these."""
    files = handlers._get_model_registry_store().get_model_version_download_uri(version.name, version.version)
    return lineage(files, version.run_id)


def lineage(files: str, run_id: str | None) -> set[Resource]:
    """The files at an address, their logged model and run, the given run, and the experiments of these."""
    resources = _resources_at(files)
    runs = {run_id or "", *(name for kind, name in resources if kind == "run")}
    runs |= {_run_of(name) or "" for kind, name in resources if kind == "logged-model"}
    for run in runs - {""}:
        resources |= {("run", run), *_of_run(run)}
    return resources


def _run_of(logged_model: str) -> str | None:
    """The source run of a logged model, deleted or not; None if there is no such model."""
    try:
        model = handlers._get_tracking_store().get_logged_model(logged_model, allow_deleted=True)
        return str(model.source_run_id or "")
    except MlflowException:
        return None


def _of_run(run: str) -> set[Resource]:
    """A run's files, including the evidence, and its experiment; empty for a run that does not exist."""
    try:
        info = handlers._get_tracking_store().get_run(run).info
    except MlflowException:
        return set()
    return {("experiment", str(info.experiment_id)), *_resources_at(str(info.artifact_uri))}


def _resources_at(uri: str) -> set[Resource]:
    """The files at EXPERIMENT/RUN/... or EXPERIMENT/models/MODEL/..., and the resources that they belong to."""
    if not uri.startswith(ROOT):
        return set()
    path = posixpath.normpath(uri.removeprefix(ROOT)).strip("/")
    experiment, *segments = path.split("/")
    resources: set[Resource] = {("files", path), ("experiment", experiment)}
    if len(segments) > 1 and segments[0] == "models":
        resources |= {("logged-model", segments[1]), ("files", f"{experiment}/models/{segments[1]}")}
    elif segments:
        resources |= {("run", segments[0])}
    return resources


def add_retention_checks() -> None:
    """Check every request that writes to a run, logged model, experiment or file, before MLflow's check of it."""
    guarded = set()
    for path, message_type, methods in handlers.get_service_endpoints(MlflowService, lambda message_type: message_type):
        if message_type not in CHANGES:
            continue
        guarded.add(message_type)
        for method in methods:
            table, key = _validators(path, method)
            table[key] = partial(_allowed, message_type, table[key])
    assert guarded == CHANGES.keys(), "this MLflow has other requests; some would be unguarded"
    repository = handlers._get_artifact_repo_mlflow_artifacts
    handlers._get_artifact_repo_mlflow_artifacts = partial(_checked_repository, repository)
    flask, native = auth._authorize_flask_artifact_proxy, auth._authorize_fastapi_artifact_proxy
    auth._authorize_flask_artifact_proxy = partial(_flask_files_allowed, flask)
    auth._authorize_fastapi_artifact_proxy = partial(_native_files_allowed, native)


def _validators(path: str, method: str) -> tuple[dict[Any, Any], Any]:
    """MLflow's table with the check of a request, and the key by which MLflow looks it up."""
    if "/mlflow/logged-models" in path:
        return auth.LOGGED_MODEL_BEFORE_REQUEST_VALIDATORS, (auth._re_compile_path(path), method)
    return auth.BEFORE_REQUEST_VALIDATORS, (path, method)


def _allowed(message_type: Any, check: Callable[[], bool]) -> bool:
    message = handlers._get_request_message(message_type())  # parsed as the handler parses it
    for kind, name in CHANGES[message_type](message):
        dependent = needed_by(auth.store.engine, kind, [name]) if name else ""
        if dependent:
            text = f"{kind.replace('-', ' ')} {name} cannot be changed: {dependent}, needs it. An admin may change it."
            raise MlflowException(text, PERMISSION_DENIED)
    return check()


def _flask_files_allowed(check: Callable[[str], bool], action: str) -> bool:
    return _may_write(auth._artifact_proxy_path(), action) and check(action)


def _native_files_allowed(
    check: Callable[[str, str, str | None, str], bool], path: str, username: str, query_path: str | None, action: str
) -> bool:
    requested = auth._artifact_proxy_path_from_request_path(path, query_path)
    return _may_write(requested, action) and check(path, username, query_path, action)


def _may_write(path: str | None, action: str) -> bool:
    """Whether no promoted version needs the files at a path of this server."""
    if action == "read" or not path:
        return True
    canonical = _canonical(path)
    return canonical is not None and not needed_by(auth.store.engine, "files", folders(canonical))


def _canonical(path: str) -> str | None:
    """The canonical form of a path of the server's files; None if it is not below their root."""
    canonical = auth._canonical_artifact_proxy_path(path)
    return None if canonical is None else posixpath.normpath(canonical).strip("/")


def _checked_repository(repository_of: Callable[[], Any]) -> Any:
    """The server's files, with a second check when a file is published: its upload may have begun before a promotion.

    Publishing is recorded meanwhile, so a promotion detects it.
    """
    repository = repository_of()
    if not getattr(repository, "has_retention_checks", False):
        repository.has_retention_checks = True
        repository.log_artifact = partial(_log_artifact, repository.log_artifact)
        if hasattr(repository, "complete_multipart_upload"):
            repository.complete_multipart_upload = partial(_complete, repository.complete_multipart_upload)
        if hasattr(repository, "_publish_staged_artifact"):
            publish = partial(_publish, repository._publish_staged_artifact, repository.artifact_dir)
            repository._publish_staged_artifact = publish
    return repository


def _log_artifact(log_artifact: Callable[..., None], local_file: str, artifact_path: str | None = None) -> None:
    with _publishing(posixpath.join(artifact_path or "", posixpath.basename(local_file))):
        log_artifact(local_file, artifact_path)


def _complete(
    complete: Callable[..., None], local_file: str, upload_id: str, parts: Any = None, artifact_path: str | None = None
) -> None:
    with _publishing(posixpath.join(artifact_path or "", posixpath.basename(local_file))):
        complete(local_file, upload_id, parts, artifact_path)


def _publish(publish: Callable[..., None], root: str, staged: str, path: str, *arguments: Any) -> None:
    with _publishing(posixpath.relpath(path, root)):
        publish(staged, path, *arguments)


@contextmanager
def _publishing(path: str) -> Iterator[None]:
    """Context for publishing a file, which is refused if a promoted version needs the path.

    The upload is recorded first, then checked. A promotion forbids first, then looks for uploads, so one of the two
    sees the other. A path that is already forbidden is not recorded: repeated attempts would block a roll-back.
    """
    _refuse_retained(path)
    with uploading(auth.store.engine, _canonical(path) or path):
        _refuse_retained(path)
        yield


def _refuse_retained(path: str) -> None:
    if not _may_write(path, "update"):
        raise MlflowException(f"{path} cannot be changed: a promoted version needs it", PERMISSION_DENIED)


def uploads_below(version: Any) -> list[str]:
    """The files of a version, or of its run, that any server is publishing now."""
    return in_progress(auth.store.engine, [path for kind, path in requirements(version) if kind == "files"])
